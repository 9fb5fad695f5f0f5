package io.lakefeed.parquet;

import io.lakefeed.parquet.ColumnarAppender.RowGroups;
import io.lakefeed.parquet.PageBuffer.Limits;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.encryption.EncryptedOutputFile;
import org.apache.iceberg.encryption.NativeEncryptionOutputFile;
import org.apache.iceberg.io.FileAppender;
import org.apache.iceberg.parquet.ParquetSchemaUtil;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.iceberg.shaded.org.apache.parquet.io.DelegatingPositionOutputStream;
import org.apache.iceberg.shaded.org.apache.parquet.io.OutputFile;
import org.apache.iceberg.shaded.org.apache.parquet.io.PositionOutputStream;
import org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType;
import org.apache.iceberg.types.TypeUtil;
import org.apache.iceberg.util.PropertyUtil;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/** Creates the appenders for files of Iceberg tables, if this package supports the table's types and settings. */
final class ColumnarFile {
    private static final String WRITER_PROPERTIES = "write.parquet.";
    private static final Set<String> KNOWN_PROPERTIES = Set.of(
            TableProperties.PARQUET_COMPRESSION,
            TableProperties.PARQUET_COMPRESSION_LEVEL,
            TableProperties.PARQUET_DICT_SIZE_BYTES,
            TableProperties.PARQUET_PAGE_ROW_LIMIT,
            TableProperties.PARQUET_PAGE_SIZE_BYTES,
            TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES,
            TableProperties.PARQUET_ROW_GROUP_CHECK_MIN_RECORD_COUNT,
            TableProperties.PARQUET_ROW_GROUP_CHECK_MAX_RECORD_COUNT,
            // Iceberg's Spark writer always sets the first of the next two properties. Both concern variants, which
            // these files do not have.
            TableProperties.PARQUET_SHRED_VARIANTS,
            TableProperties.PARQUET_VARIANT_BUFFER_SIZE);

    private ColumnarFile() {}

    /** Returns the appender of a file; null if Iceberg's own appender has to write it. */
    static FileAppender<InternalRow> appender(
            EncryptedOutputFile file,
            Schema schema,
            StructType rows,
            Map<String, String> properties,
            Map<String, String> metadata,
            MetricsConfig metricsConfig) {
        if (file instanceof NativeEncryptionOutputFile || rows == null || refusal(schema, rows, properties) != null) {
            return null;
        }
        MessageType parquet = ParquetSchemaUtil.convert(schema, "table");
        Limits limits = new Limits(
                number(properties, TableProperties.PARQUET_PAGE_SIZE_BYTES, TableProperties.PARQUET_PAGE_SIZE_BYTES_DEFAULT),
                number(properties, TableProperties.PARQUET_PAGE_ROW_LIMIT, TableProperties.PARQUET_PAGE_ROW_LIMIT_DEFAULT),
                number(properties, TableProperties.PARQUET_DICT_SIZE_BYTES, TableProperties.PARQUET_DICT_SIZE_BYTES_DEFAULT));
        Map<String, String> ofFile = new HashMap<>(metadata);
        ofFile.put("iceberg.schema", SchemaParser.toJson(schema));
        Optional<String> level = Optional.ofNullable(properties.get(TableProperties.PARQUET_COMPRESSION_LEVEL));
        return new ColumnarAppender(
                new TableOutput(file.encryptingOutputFile()),
                parquet,
                new Columns(parquet, rows, limits),
                new RowGroups(
                        number(
                                properties,
                                TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES,
                                TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES_DEFAULT),
                        number(
                                properties,
                                TableProperties.PARQUET_ROW_GROUP_CHECK_MIN_RECORD_COUNT,
                                TableProperties.PARQUET_ROW_GROUP_CHECK_MIN_RECORD_COUNT_DEFAULT),
                        number(
                                properties,
                                TableProperties.PARQUET_ROW_GROUP_CHECK_MAX_RECORD_COUNT,
                                TableProperties.PARQUET_ROW_GROUP_CHECK_MAX_RECORD_COUNT_DEFAULT)),
                new Compression(codec(properties).orElseThrow(), level).compressor(limits.pageBytes()),
                ofFile,
                byNamesInFile(metricsConfig, schema, parquet));
    }

    /** Returns why {@link ColumnarAppender} cannot write rows of this type; null if it can. */
    static String refusal(Schema schema, StructType rows, Map<String, String> properties) {
        for (String name : properties.keySet()) {
            boolean isUnknown = name.startsWith(WRITER_PROPERTIES) && !KNOWN_PROPERTIES.contains(name);
            if (isUnknown || name.startsWith("parquet.")) {
                return "the table has the property " + name;
            }
        }
        if (codec(properties).isEmpty()) {
            return "the table's files are compressed with " + properties.get(TableProperties.PARQUET_COMPRESSION);
        }
        return Columns.refusal(ParquetSchemaUtil.convert(schema, "table"), rows);
    }

    private static Optional<CompressionCodecName> codec(Map<String, String> properties) {
        return Compression.named(properties.getOrDefault(
                TableProperties.PARQUET_COMPRESSION, TableProperties.PARQUET_COMPRESSION_DEFAULT));
    }

    /** Returns the config by the names of the columns in the footer, some of which Parquet has changed. */
    private static MetricsConfig byNamesInFile(MetricsConfig config, Schema schema, MessageType parquet) {
        Schema inFile = ParquetSchemaUtil.convertAndPrune(parquet);
        Map<String, String> modes = new HashMap<>();
        boolean differ = false;
        for (int id : TypeUtil.getProjectedIds(schema)) {
            String name = schema.findColumnName(id);
            String found = inFile.findColumnName(id);
            differ |= !name.equals(found);
            modes.put(TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX + found, config.columnMode(name).toString());
        }
        return differ ? MetricsConfig.from(modes, null, null) : config;
    }

    private static int number(Map<String, String> properties, String name, int otherwise) {
        int number = PropertyUtil.propertyAsInt(properties, name, otherwise);
        if (number <= 0) {
            throw new IllegalArgumentException("the table's property " + name + " is " + number + ": set it to 1 or more");
        }
        return number;
    }

    /** Makes a file of the table's FileIO an output file of parquet-java. */
    record TableOutput(org.apache.iceberg.io.OutputFile file) implements OutputFile {
        @Override
        public PositionOutputStream create(long blockSize) {
            return positioned(file.create());
        }

        @Override
        public PositionOutputStream createOrOverwrite(long blockSize) {
            return positioned(file.createOrOverwrite());
        }

        private static PositionOutputStream positioned(org.apache.iceberg.io.PositionOutputStream stream) {
            return new DelegatingPositionOutputStream(stream) {
                @Override
                public long getPos() throws IOException {
                    return stream.getPos();
                }
            };
        }

        @Override
        public boolean supportsBlockSize() {
            return false;
        }

        @Override
        public long defaultBlockSize() {
            return 0;
        }

        @Override
        public String getPath() {
            return file.location();
        }
    }
}
