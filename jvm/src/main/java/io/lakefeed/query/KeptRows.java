package io.lakefeed.query;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.LogicalRDD$;

/** Rows that were persisted, as a relation of their own, whose plan says nothing of how they came about. */
public final class KeptRows {
    private KeptRows() {}

    /**
     * A relation over the rows that are kept.
     *
     * <p>Spark refuses a MERGE that reads its source twice, as copy-on-write does, where the source's plan has an
     * expression that is not deterministic, kept rows or not; the verdicts of a batch are counted by one. Size,
     * partitioning and order are known as before. Unlike {@code localCheckpoint} this does not copy the rows, and a block
     * that is lost with its executor is made again.
     *
     * @param kept what {@code persist} returned, once its rows were asked for
     */
    public static org.apache.spark.sql.Dataset<Row> of(Dataset<Row> kept) {
        LogicalRDD relation =
                LogicalRDD$.MODULE$.fromDataset(kept.queryExecution().toRdd(), kept, kept.isStreaming());
        return Dataset.ofRows(kept.sparkSession(), relation);
    }
}
