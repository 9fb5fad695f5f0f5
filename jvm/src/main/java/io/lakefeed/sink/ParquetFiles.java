package io.lakefeed.sink;

import io.lakefeed.commit.CheckedFileCommit;
import java.util.List;
import java.util.Map;
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
    private final String path;
    private final FileStreamSink sink;

    /** For files below {@code path}; {@code options} as for {@code DataStreamWriter}. */
    public ParquetFiles(SparkSession spark, String path, List<String> partitionBy, Map<String, String> options) {
        this.path = path;
        spark.conf().set("spark.sql.streaming.commitProtocolClass", CheckedFileCommit.class.getName());
        this.sink = new FileStreamSink(
                spark,
                path,
                new ParquetFileFormat(),
                CollectionConverters.asScala(partitionBy).toSeq(),
                scala.collection.immutable.Map.from(CollectionConverters.asScala(options)));
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
