package io.lakefeed.parquet;

import io.lakefeed.parquet.ColumnarAppender.RowGroups;
import io.lakefeed.parquet.PageBuffer.Limits;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.shaded.org.apache.parquet.column.ParquetProperties;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.util.HadoopOutputFile;
import org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType;
import org.apache.parquet.column.ParquetProperties.WriterVersion;
import org.apache.parquet.format.Util;
import org.apache.parquet.format.converter.ParquetMetadataConverter;
import org.apache.parquet.hadoop.ParquetOutputFormat;
import org.apache.parquet.hadoop.api.WriteSupport.WriteContext;
import org.apache.parquet.hadoop.metadata.FileMetaData;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's Parquet format, in which {@link ColumnarAppender} writes the files.
 *
 * <p>Schema, metadata, names and the commit of files are Spark's. Spark's writer writes files with a setting or a type
 * that this class does not support.
 */
public final class ColumnarParquet extends ParquetFileFormat {
    private static final long serialVersionUID = 1L;
    private static final String ZSTD_LEVEL = "parquet.compression.codec.zstd.level";
    private static final Set<String> KNOWN_SETTINGS = Set.of(
            ParquetOutputFormat.BLOCK_SIZE,
            ParquetOutputFormat.PAGE_SIZE,
            ParquetOutputFormat.DICTIONARY_PAGE_SIZE,
            ParquetOutputFormat.PAGE_ROW_COUNT_LIMIT,
            ParquetOutputFormat.COMPRESSION,
            ZSTD_LEVEL,
            // Spark sets these three properties for each write.
            ParquetOutputFormat.WRITER_VERSION,
            ParquetOutputFormat.WRITE_SUPPORT_CLASS,
            ParquetOutputFormat.JOB_SUMMARY_LEVEL);

    /** Spark's settings that rebase dates and timestamps to the Julian calendar. */
    private static final List<String> REBASES =
            List.of("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite");

    @Override
    public OutputWriterFactory prepareWrite(
            SparkSession spark, Job job, scala.collection.immutable.Map<String, String> options, StructType rows) {
        OutputWriterFactory sparks = super.prepareWrite(spark, job, options, rows);
        // Escape the name: otherwise Hadoop would replace ${name} in it.
        Configuration own = job.getConfiguration();
        String schema = own.getRaw(ParquetWriteSupport.SPARK_ROW_SCHEMA());
        own.set(ParquetWriteSupport.SPARK_ROW_SCHEMA(), schema.replace("$", "\\u0024"));
        SQLConf settings = spark.sessionState().conf();
        boolean columnar = ColumnarModel.isOn(settings) && refusal(settings, own, rows) == null;
        return columnar ? new Factory(sparks) : sparks;
    }

    /**
     * Returns why Spark's own writer must write files; null if {@link ColumnarAppender} can write them.
     *
     * @param columns Spark's schema of the files' rows, as JSON
     * @param options the options of the write, as for {@code DataFrameWriter}
     */
    public static String refusal(SparkSession spark, String columns, Map<String, String> options) throws IOException {
        var given = scala.collection.immutable.Map.from(CollectionConverters.asScala(options));
        Job job = Job.getInstance(spark.sessionState().newHadoopConfWithOptions(given));
        StructType rows = (StructType) DataType.fromJson(columns);
        new ColumnarParquet().prepareWrite(spark, job, given, rows);
        return refusal(spark.sessionState().conf(), job.getConfiguration(), rows);
    }

    private static String refusal(SQLConf session, Configuration settings, StructType rows) {
        for (String name : settings.getPropsWithPrefix("parquet.").keySet()) {
            if (!KNOWN_SETTINGS.contains("parquet." + name)) {
                return "the option parquet." + name;
            }
        }
        WriterVersion version = ParquetOutputFormat.getWriterVersion(settings);
        if (version != WriterVersion.PARQUET_1_0) {
            return "pages are of version " + version;
        }
        for (String rebase : REBASES) {
            String mode = session.getConfString(rebase, "CORRECTED");
            if (!mode.equalsIgnoreCase("CORRECTED")) {
                return rebase + " is " + mode;
            }
        }
        if (session.maxConcurrentOutputFileWriters() > 0) {
            // With this setting, Spark keeps several files of a task open, for which it has its own writers.
            return "spark.sql.maxConcurrentOutputFileWriters is set";
        }
        if (codec(settings).isEmpty()) {
            return "the files are compressed with " + ParquetOutputFormat.getCompression(settings);
        }
        return Columns.refusal(context(settings).schema(), rows);
    }

    private static Optional<CompressionCodecName> codec(Configuration settings) {
        return Compression.named(ParquetOutputFormat.getCompression(settings).name());
    }

    /** The converter of metadata in Iceberg's copy of parquet-java. */
    private static final class ShadedConverter
            extends org.apache.iceberg.shaded.org.apache.parquet.format.converter.ParquetMetadataConverter {}

    /** The schema and the metadata that Spark writes to a file. */
    private record Context(MessageType schema, Map<String, String> metadata) {}

    /**
     * Returns Spark's schema and metadata in classes of Iceberg's parquet-java. To convert them, the method writes a
     * footer with Spark's classes and reads it with Iceberg's.
     */
    private static Context context(Configuration settings) {
        WriteContext sparks = new ParquetWriteSupport().init(settings);
        FileMetaData file = new FileMetaData(sparks.getSchema(), sparks.getExtraMetaData(), "");
        ByteArrayOutputStream footer = new ByteArrayOutputStream();
        try {
            ParquetMetadata empty = new ParquetMetadata(file, List.of());
            Util.writeFileMetaData(new ParquetMetadataConverter().toParquetMetadata(1, empty), footer);
            var read = org.apache.iceberg.shaded.org.apache.parquet.format.Util.readFileMetaData(
                    new ByteArrayInputStream(footer.toByteArray()));
            MessageType schema = new ShadedConverter().fromParquetMetadata(read).getFileMetaData().getSchema();
            return new Context(schema, sparks.getExtraMetaData());
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }

    private static final class Factory extends OutputWriterFactory {
        private static final long serialVersionUID = 1L;
        private final OutputWriterFactory sparks;

        Factory(OutputWriterFactory sparks) {
            this.sparks = sparks;
        }

        @Override
        public String getFileExtension(TaskAttemptContext task) {
            return sparks.getFileExtension(task);
        }

        @Override
        public OutputWriter newInstance(String path, StructType rows, TaskAttemptContext task) {
            Configuration settings = task.getConfiguration();
            Context context = context(settings);
            Limits limits = new Limits(
                    ParquetOutputFormat.getPageSize(settings),
                    settings.getInt(
                            ParquetOutputFormat.PAGE_ROW_COUNT_LIMIT, ParquetProperties.DEFAULT_PAGE_ROW_COUNT_LIMIT),
                    ParquetOutputFormat.getDictionaryPageSize(settings));
            RowGroups rowGroups = new RowGroups(
                    ParquetOutputFormat.getLongBlockSize(settings),
                    ParquetProperties.DEFAULT_MINIMUM_RECORD_COUNT_FOR_CHECK,
                    ParquetProperties.DEFAULT_MAXIMUM_RECORD_COUNT_FOR_CHECK);
            CompressionCodecName codec = codec(settings).orElseThrow();
            String level = settings.get(codec == CompressionCodecName.ZSTD ? ZSTD_LEVEL : Compression.GZIP_LEVEL);
            try {
                ColumnarAppender file = new ColumnarAppender(
                        HadoopOutputFile.fromPath(new Path(path), settings),
                        context.schema(),
                        new Columns(context.schema(), rows, limits),
                        rowGroups,
                        new Compression(codec, Optional.ofNullable(level)).compressor(limits.pageBytes()),
                        context.metadata(),
                        MetricsConfig.getDefault());
                file.open();
                return new Writer(path, file);
            } catch (IOException failed) {
                throw new UncheckedIOException("the file " + path + " cannot be written", failed);
            }
        }
    }

    private static final class Writer extends OutputWriter {
        private final String path;
        private final ColumnarAppender file;

        Writer(String path, ColumnarAppender file) {
            this.path = path;
            this.file = file;
        }

        @Override
        public void write(InternalRow row) {
            file.add(row);
        }

        @Override
        public void close() {
            try {
                file.close();
            } catch (IOException failed) {
                throw new UncheckedIOException("the file " + path + " cannot be written", failed);
            }
        }

        @Override
        public String path() {
            return path;
        }
    }
}
