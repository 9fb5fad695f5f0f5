package io.lakefeed.query;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import scala.Option;

/** Makes a relation of shuffled rows, which hides the plan that computes the rows. */
public final class KeptRows {
    private KeptRows() {}

    /**
     * Returns a relation over the files of a shuffle, which Spark writes once and can read several times.
     *
     * <p>A copy-on-write MERGE reads its source twice. Spark refuses that if the source's plan has a non-deterministic
     * expression, such as the function that counts a batch's outcomes. The relation hides the expression, but not the
     * partitioning. Unlike {@code persist} and {@code localCheckpoint}, the relation does not copy the rows, and if
     * rows are lost with an executor, Spark computes them again.
     *
     * @param shuffled the rows; their plan must end with a shuffle
     */
    public static org.apache.spark.sql.Dataset<Row> of(Dataset<Row> shuffled) {
        RDD<InternalRow> rows = shuffled.queryExecution().toRdd();
        SparkPlan plan = shuffled.queryExecution().executedPlan();
        // An adaptive plan does not know how its rows are partitioned, but its final plan does.
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
