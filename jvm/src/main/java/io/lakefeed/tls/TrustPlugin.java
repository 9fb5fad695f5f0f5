package io.lakefeed.tls;

import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Gives executors the driver's {@link Trust}: {@code spark.plugins=io.lakefeed.tls.TrustPlugin}.
 *
 * <p>An executor asks when it starts, before its first task. So no file has to be on its machine, and neither a Spark
 * setting nor a command line has the key. It travels over Spark's own connection, which {@code spark.authenticate} and
 * {@code spark.network.crypto.enabled} protect.
 */
public final class TrustPlugin implements SparkPlugin {
    /** Spark's id of the executor in the driver's JVM. */
    private static final String DRIVER = "driver";

    /** Messages are of Java's own classes: an executor reads them before it has this application's jars. */
    private static final String QUESTION = "lakefeed trust";

    /** Spark creates it. */
    public TrustPlugin() {}

    @Override
    public DriverPlugin driverPlugin() {
        return new DriverPlugin() {
            @Override
            public Map<String, String> init(SparkContext context, PluginContext plugin) {
                return Map.of();
            }

            @Override
            public Object receive(Object message) {
                return QUESTION.equals(message) ? Trust.installed() : null;
            }
        };
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new ExecutorPlugin() {
            @Override
            public void init(PluginContext context, Map<String, String> extra) {
                if (DRIVER.equals(context.executorID())) {
                    return;
                }
                try {
                    String[] said = (String[]) context.ask(QUESTION);
                    Trust.install(said[0], said[1], said[2]);
                } catch (Exception failed) {
                    // An executor that trusts less than the driver would fail later, and in other words.
                    throw new IllegalStateException("The driver's certificates were not installed", failed);
                }
            }
        };
    }
}
