package io.lakefeed.query;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.LogicalRDD$;

/** Wraps shuffled rows in a relation that hides the plan behind them. */
public final class KeptRows {
    private KeptRows() {}

    /**
     * Returns a relation over the files of a shuffle, which Spark writes once however often they are read.
     *
     * <p>Spark refuses a MERGE that reads its source twice, as copy-on-write does, if the source's plan has a
     * non-deterministic expression; the function that counts the outcomes of a batch is one. Partitioning stays known.
     * Unlike {@code persist} and {@code localCheckpoint} this does not copy the rows once more, and Spark computes again
     * what is lost with an executor.
     *
     * @param shuffled rows whose plan ends with a shuffle
     */
    public static org.apache.spark.sql.Dataset<Row> of(Dataset<Row> shuffled) {
        LogicalRDD relation =
                LogicalRDD$.MODULE$.fromDataset(shuffled.queryExecution().toRdd(), shuffled, shuffled.isStreaming());
        return Dataset.ofRows(shuffled.sparkSession(), relation);
    }
}
