package io.lakefeed.parquet;

import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.encryption.EncryptedOutputFile;
import org.apache.iceberg.formats.FormatModel;
import org.apache.iceberg.formats.FormatModelRegistry;
import org.apache.iceberg.formats.ModelWriteBuilder;
import org.apache.iceberg.formats.ReadBuilder;
import org.apache.iceberg.io.FileAppender;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.util.Pair;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * Iceberg's model of Parquet files with Spark's rows, in which {@link ColumnarAppender} writes data files.
 *
 * <p>Iceberg still reads files, and writes delete files and files with a schema or property that {@link ColumnarFile}
 * does not support.
 */
public final class ColumnarModel implements FormatModel<InternalRow, StructType> {
    private static final String MODELS = "MODELS";
    /** The Spark setting that selects {@link ColumnarAppender} (true) or Iceberg's own appender (false). */
    private static final String SETTING = "spark.lakefeed.fastPath";

    private static final List<RowObserver> OBSERVERS = ServiceLoader.load(
                    RowObserver.class, ColumnarModel.class.getClassLoader())
            .stream()
            .map(ServiceLoader.Provider::get)
            .toList();

    private final FormatModel<InternalRow, StructType> iceberg;

    /** Sees the rows of data files before they are encoded. A plug-in's jar names its class in META-INF/services. */
    public interface RowObserver {
        /** Returns an appender that reads the rows and passes them on to {@code file}, or {@code file} itself. */
        FileAppender<InternalRow> observe(FileAppender<InternalRow> file, Schema schema);
    }

    private ColumnarModel(FormatModel<InternalRow, StructType> iceberg) {
        this.iceberg = iceberg;
    }

    /**
     * Replaces Iceberg's model in this JVM, once.
     *
     * <p>The method changes a private map of Iceberg's registry, which accepts no second model for the same format and
     * rows.
     *
     * @throws IllegalStateException if this version of Iceberg does not have the map
     */
    public static synchronized void install() {
        try {
            Field models = FormatModelRegistry.class.getDeclaredField(MODELS);
            models.setAccessible(true);
            @SuppressWarnings("unchecked")
            Map<Pair<FileFormat, Class<?>>, FormatModel<?, ?>> all =
                    (Map<Pair<FileFormat, Class<?>>, FormatModel<?, ?>>) models.get(null);
            all.computeIfPresent(Pair.of(FileFormat.PARQUET, InternalRow.class), (key, model) -> over(model));
        } catch (ReflectiveOperationException other) {
            throw new IllegalStateException("this version of Iceberg has no field " + MODELS
                    + ", which lakefeed changes: use the version that lakefeed is tested with", other);
        }
    }

    @SuppressWarnings("unchecked")
    private static FormatModel<?, ?> over(FormatModel<?, ?> model) {
        return model instanceof ColumnarModel ? model : new ColumnarModel((FormatModel<InternalRow, StructType>) model);
    }

    /** Returns why {@link ColumnarAppender} cannot write the files of a table; null if it can. */
    public static String refusal(Table table) {
        return refusal(SparkSchemaUtil.convert(table.schema()).json(), table.properties());
    }

    /**
     * Returns why Iceberg's own appender must write the files of a new table; null if {@link ColumnarAppender} can
     * write them.
     *
     * @param columns Spark's schema of the table, as JSON
     * @param properties the properties of the table
     */
    public static String refusal(String columns, Map<String, String> properties) {
        String format = properties.getOrDefault(TableProperties.DEFAULT_FILE_FORMAT, "parquet");
        if (!format.equalsIgnoreCase("parquet")) {
            return "the table's files are " + format;
        }
        StructType rows = (StructType) DataType.fromJson(columns);
        Map<String, String> ofFiles = new HashMap<>(properties);
        // Iceberg adds this property to each new table.
        ofFiles.putIfAbsent(TableProperties.PARQUET_COMPRESSION, TableProperties.PARQUET_COMPRESSION_DEFAULT_SINCE_1_4_0);
        return ColumnarFile.refusal(SparkSchemaUtil.convert(rows), rows, ofFiles);
    }

    /** Returns whether {@link ColumnarAppender} is on in the settings of a session or a task. */
    static boolean isOn(SQLConf settings) {
        return Boolean.parseBoolean(settings.getConfString(SETTING, "false"));
    }

    @Override
    public FileFormat format() {
        return iceberg.format();
    }

    @Override
    public Class<? extends InternalRow> type() {
        return iceberg.type();
    }

    @Override
    public Class<StructType> schemaType() {
        return iceberg.schemaType();
    }

    @Override
    public ReadBuilder<InternalRow, StructType> readBuilder(InputFile file) {
        return iceberg.readBuilder(file);
    }

    @Override
    public ModelWriteBuilder<InternalRow, StructType> writeBuilder(EncryptedOutputFile file) {
        return new Builder(iceberg.writeBuilder(file), file);
    }

    /** Passes all settings to Iceberg's builder, and remembers those that {@link ColumnarFile} needs. */
    private static final class Builder implements ModelWriteBuilder<InternalRow, StructType> {
        private final ModelWriteBuilder<InternalRow, StructType> iceberg;
        private final EncryptedOutputFile file;
        private final Map<String, String> properties = new HashMap<>();
        private final Map<String, String> metadata = new HashMap<>();
        private Schema schema;
        private StructType rows;
        private MetricsConfig metricsConfig = MetricsConfig.getDefault();
        private boolean data;
        private boolean encrypted;

        Builder(ModelWriteBuilder<InternalRow, StructType> iceberg, EncryptedOutputFile file) {
            this.iceberg = iceberg;
            this.file = file;
        }

        @Override
        public FileAppender<InternalRow> build() throws IOException {
            FileAppender<InternalRow> appender = null;
            if (data && !encrypted && isOn(SQLConf.get())) {
                appender = ColumnarFile.appender(file, schema, rows, properties, metadata, metricsConfig);
            }
            appender = appender == null ? iceberg.build() : appender;
            for (RowObserver each : data ? OBSERVERS : List.<RowObserver>of()) {
                appender = each.observe(appender, schema);
            }
            return appender;
        }

        @Override
        public ModelWriteBuilder<InternalRow, StructType> schema(Schema columns) {
            schema = columns;
            iceberg.schema(columns);
            return this;
        }

        @Override
        public ModelWriteBuilder<InternalRow, StructType> engineSchema(StructType ofRows) {
            rows = ofRows;
            iceberg.engineSchema(ofRows);
            return this;
        }

        @Override
        public ModelWriteBuilder<InternalRow, StructType> set(String property, String value) {
            properties.put(property, value);
            iceberg.set(property, value);
            return this;
        }

        @Override
        public ModelWriteBuilder<InternalRow, StructType> meta(String property, String value) {
            metadata.put(property, value);
            iceberg.meta(property, value);
            return this;
        }

        @Override
        public ModelWriteBuilder<InternalRow, StructType> content(FileContent content) {
            data = content == FileContent.DATA;
            iceberg.content(content);
            return this;
        }

        @Override
        public ModelWriteBuilder<InternalRow, StructType> metricsConfig(MetricsConfig config) {
            metricsConfig = config;
            iceberg.metricsConfig(config);
            return this;
        }

        @Override
        public ModelWriteBuilder<InternalRow, StructType> overwrite() {
            iceberg.overwrite();
            return this;
        }

        @Override
        public ModelWriteBuilder<InternalRow, StructType> withFileEncryptionKey(ByteBuffer key) {
            encrypted = true;
            iceberg.withFileEncryptionKey(key);
            return this;
        }

        @Override
        public ModelWriteBuilder<InternalRow, StructType> withAADPrefix(ByteBuffer prefix) {
            encrypted = true;
            iceberg.withAADPrefix(prefix);
            return this;
        }
    }
}
