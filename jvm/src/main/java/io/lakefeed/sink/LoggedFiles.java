package io.lakefeed.sink;

import io.lakefeed.commit.CheckedFileCommit;
import io.lakefeed.parquet.ColumnarParquet;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.avro.AvroFileFormat;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.csv.CSVFileFormat;
import org.apache.spark.sql.execution.datasources.json.JsonFileFormat;
import org.apache.spark.sql.execution.datasources.orc.OrcFileFormat;
import org.apache.spark.sql.execution.streaming.sinks.FileStreamSink;
import org.apache.spark.sql.execution.streaming.sinks.FileStreamSinkLog;
import org.apache.spark.sql.execution.streaming.sinks.SinkFileStatus;
import org.apache.spark.sql.functions;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Writes the batches of a {@code foreachBatch} with Spark's file sink, as {@code writeStream.format("parquet")} does.
 *
 * <p>With {@code foreachBatch}, decoding and counting are the same as for other sinks, and the schema may change
 * between batches. Spark adds an entry to the log {@code _spark_metadata} for each batch.
 */
public final class LoggedFiles {
    private static final String COMPACT = ".compact";
    private static final String ROWS = "lakefeed_rows";

    private final SparkSession spark;
    private final String path;
    private final FileStreamSink sink;

    /**
     * Creates a sink for files below a path.
     *
     * @param format parquet, orc, avro, json or csv
     * @param partitionBy the columns that become directories
     * @param options the options of the format, as for {@code DataStreamWriter}
     */
    public LoggedFiles(
            SparkSession spark, String path, String format, List<String> partitionBy, Map<String, String> options) {
        this.spark = spark;
        this.path = path;
        spark.conf().set("spark.sql.streaming.commitProtocolClass", CheckedFileCommit.class.getName());
        this.sink = new FileStreamSink(
                spark,
                path,
                fileFormat(format),
                CollectionConverters.asScala(partitionBy).toSeq(),
                scala.collection.immutable.Map.from(CollectionConverters.asScala(options)));
    }

    /** Returns the newest batch in the log, or -1 for an empty log. Sends one LIST. */
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

    /**
     * Returns the directories in which a batch has files, such as {@code zip=8001/day=2024-01-01}; if {@code batchId}
     * is -1, of all batches in the log. Sends one or a few GETs.
     */
    public List<String> directories(long batchId) {
        FileStreamSinkLog log = new FileStreamSinkLog(
                FileStreamSinkLog.VERSION(),
                spark,
                new Path(path, FileStreamSink.metadataDir()).toString(),
                Option.empty());
        Set<String> found = new TreeSet<>();
        String root = new Path(path).toUri().getPath() + "/";
        SinkFileStatus[] files = batchId < 0
                ? log.allFiles()
                : log.get(batchId).getOrElse(() -> new SinkFileStatus[0]);
        for (SinkFileStatus each : files) {
            String file = each.sparkPath().toPath().toUri().getPath();
            int end = file.lastIndexOf('/');
            if (file.startsWith(root) && end >= root.length()) {
                found.add(file.substring(root.length(), end));
            }
        }
        return List.copyOf(found);
    }

    private static FileFormat fileFormat(String name) {
        return switch (name) {
            case "parquet" -> new ColumnarParquet();
            case "orc" -> new OrcFileFormat();
            case "json" -> new JsonFileFormat();
            case "csv" -> new CSVFileFormat();
            case "avro" -> new AvroFileFormat();
            default -> throw new IllegalArgumentException("unknown file format " + name);
        };
    }

    /** Writes rows, and logs their files as a batch; returns the number of rows, or -1 if the log has the batch. */
    public long add(long batchId, String commitId, Dataset<Row> rows) {
        // Count the rows here, because Spark's file sink does not report how many it has written.
        Dataset<Row> counted = rows.observe(ROWS, functions.count(functions.lit(1)).as(ROWS));
        boolean written;
        CheckedFileCommit.expect(path, commitId);
        try {
            sink.addBatch(batchId, counted);
        } finally {
            written = CheckedFileCommit.forget(path);
        }
        return written ? counted.queryExecution().observedMetrics().apply(ROWS).getLong(0) : -1;
    }
}
