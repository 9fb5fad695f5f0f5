package io.lakefeed.query;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import scala.Option;

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
        RDD<InternalRow> rows = shuffled.queryExecution().toRdd();
        SparkPlan plan = shuffled.queryExecution().executedPlan();
        // An adaptive plan itself does not say how its rows are partitioned; the one that it has become does.
        SparkPlan done = plan instanceof AdaptiveSparkPlanExec adaptive ? adaptive.executedPlan() : plan;
        LogicalRDD relation = new LogicalRDD(
                shuffled.queryExecution().analyzed().output(),
                rows,
                done.outputPartitioning(),
                done.outputOrdering(),
                shuffled.isStreaming(),
                Option.empty(),
                shuffled.sparkSession(),
                Option.empty(),
                Option.empty());
        return Dataset.ofRows(shuffled.sparkSession(), relation);
    }
}
