package io.lakefeed.metrics;

import com.codahale.metrics.MetricRegistry;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Registers the numbers of feeds with Spark's metric system. Set {@code spark.plugins=io.lakefeed.metrics.FeedMetrics}.
 *
 * <p>Spark's sinks then report the numbers, for instance to Prometheus, JMX, StatsD, Graphite or CSV files. The
 * driver's Python process puts the numbers into {@link FeedGauges}; executors have no numbers of feeds.
 */
public final class FeedMetrics implements SparkPlugin {
    @Override
    public DriverPlugin driverPlugin() {
        return new DriverPlugin() {
            private MetricRegistry registry;

            @Override
            public void registerMetrics(String application, PluginContext context) {
                registry = context.metricRegistry();
                FeedGauges.open(registry);
            }

            @Override
            public void shutdown() {
                FeedGauges.close(registry);
            }
        };
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return null;
    }
}
