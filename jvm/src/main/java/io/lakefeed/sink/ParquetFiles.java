package io.lakefeed.sink;

import io.lakefeed.commit.CheckedFileCommit;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.streaming.sinks.FileStreamSink;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's own file sink, {@code writeStream.format("parquet")}, for the batches of a {@code foreachBatch}.
 *
 * <p>So a batch is decoded and counted in one way whatever the sink is, and its schema may be another than the last one's.
 * The log {@code _spark_metadata} is Spark's, entry by entry.
 */
public final class ParquetFiles {
    private static final String COMPACT = ".compact";

    private final SparkSession spark;
    private final String path;
    private final FileStreamSink sink;

    /** For files below {@code path}; {@code options} as for {@code DataStreamWriter}. */
    public ParquetFiles(SparkSession spark, String path, List<String> partitionBy, Map<String, String> options) {
        this.spark = spark;
        this.path = path;
        spark.conf().set("spark.sql.streaming.commitProtocolClass", CheckedFileCommit.class.getName());
        this.sink = new FileStreamSink(
                spark,
                path,
                new ParquetFileFormat(),
                CollectionConverters.asScala(partitionBy).toSeq(),
                scala.collection.immutable.Map.from(CollectionConverters.asScala(options)));
    }

    /** The newest batch in the log, or -1: one LIST. */
    public long logged() throws IOException {
        Path log = new Path(path, FileStreamSink.metadataDir());
        long newest = -1;
        try {
            for (FileStatus each : log.getFileSystem(spark.sessionState().newHadoopConf()).listStatus(log)) {
                String name = each.getPath().getName();
                String batch = name.endsWith(COMPACT) ? name.substring(0, name.length() - COMPACT.length()) : name;
                if (batch.matches("[0-9]{1,18}")) {
                    newest = Math.max(newest, Long.parseLong(batch));
                }
            }
        } catch (FileNotFoundException none) {
            return -1;
        }
        return newest;
    }

    /** Writes the rows and lists them as this batch, unless the log has it. */
    public void add(long batchId, String commitId, Dataset<Row> rows) {
        CheckedFileCommit.expect(path, commitId);
        try {
            sink.addBatch(batchId, rows);
        } finally {
            CheckedFileCommit.forget(path);
        }
    }
}
