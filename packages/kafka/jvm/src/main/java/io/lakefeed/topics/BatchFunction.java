package io.lakefeed.topics;

import io.lakefeed.SqlFunction;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * {@code batch(source)} returns {@code query/number}: the streaming query and the batch number that a task belongs to.
 * So one plan can serve all batches of a query.
 *
 * <p>The argument is not used. Without an argument, Spark would call the function on the driver, where there is no
 * task.
 */
public final class BatchFunction extends SqlFunction<UTF8String> {
    private static final long serialVersionUID = 1L;
    private static final String QUERY = "sql.streaming.queryId";
    private static final String BATCH = "streaming.sql.batchId";

    private transient TaskContext task;
    private transient UTF8String batch;

    BatchFunction() {
        super("batch", "batch", DataTypes.StringType, DataTypes.StringType);
    }

    public UTF8String invoke(UTF8String source) {
        TaskContext now = TaskContext.get();
        if (batch == null || now != task) {
            task = now;
            batch = UTF8String.fromString(now.getLocalProperty(QUERY) + "/" + now.getLocalProperty(BATCH));
        }
        return batch;
    }
}
