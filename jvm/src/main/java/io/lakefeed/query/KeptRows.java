package io.lakefeed.query;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import scala.Option;

/** Wraps shuffled rows in a relation that hides the plan that computes them. */
public final class KeptRows {
    private KeptRows() {}

    /**
     * Returns a relation over the files of a shuffle, which Spark writes once and can read several times.
     *
     * <p>A copy-on-write MERGE reads its source twice. Spark refuses that if the source's plan has a non-deterministic
     * expression, such as the function that counts the outcomes of a batch. The relation hides it and keeps the
     * partitioning. Unlike {@code persist} and {@code localCheckpoint} it does not copy the rows, and Spark computes
     * rows again that are lost with an executor.
     *
     * @param shuffled rows whose plan ends with a shuffle
     */
    public static org.apache.spark.sql.Dataset<Row> of(Dataset<Row> shuffled) {
        RDD<InternalRow> rows = shuffled.queryExecution().toRdd();
        SparkPlan plan = shuffled.queryExecution().executedPlan();
        // An adaptive plan does not know how its rows are partitioned; its final plan does.
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
