package io.lakefeed.parquet;

import java.util.Map;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/** Lets executors write files by columns: {@code spark.plugins=io.lakefeed.parquet.ColumnarPlugin}. */
public final class ColumnarPlugin implements SparkPlugin {
    /** Spark's id of the executor in the driver's JVM, where the catalog does it when it is first needed. */
    private static final String DRIVER = "driver";

    /** Spark creates it. */
    public ColumnarPlugin() {}

    @Override
    public DriverPlugin driverPlugin() {
        return null;
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new ExecutorPlugin() {
            @Override
            public void init(PluginContext context, Map<String, String> extra) {
                if (!DRIVER.equals(context.executorID())) {
                    ColumnarModel.install();
                }
            }
        };
    }
}
