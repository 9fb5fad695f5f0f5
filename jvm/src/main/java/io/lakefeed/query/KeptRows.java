package io.lakefeed.query;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.LogicalRDD$;

/** Wraps persisted rows in a relation that hides the plan behind them. */
public final class KeptRows {
    private KeptRows() {}

    /**
     * Returns a relation over persisted rows.
     *
     * <p>Spark refuses a MERGE that reads its source twice, as copy-on-write does, if the source's plan has a
     * non-deterministic expression, even where the rows are persisted; the function that counts the outcomes of a batch
     * is one. Size, partitioning and order stay known. Unlike {@code localCheckpoint} this does not copy the rows, and
     * Spark computes a block again that is lost with its executor.
     *
     * @param kept the result of {@code persist}, after its rows were computed
     */
    public static org.apache.spark.sql.Dataset<Row> of(Dataset<Row> kept) {
        LogicalRDD relation =
                LogicalRDD$.MODULE$.fromDataset(kept.queryExecution().toRdd(), kept, kept.isStreaming());
        return Dataset.ofRows(kept.sparkSession(), relation);
    }
}
