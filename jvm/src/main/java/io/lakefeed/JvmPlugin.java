package io.lakefeed;

import io.lakefeed.http.Waits;
import io.lakefeed.parquet.ColumnarModel;
import io.lakefeed.s3.RequestCount;
import io.lakefeed.s3.RequestMeter;
import io.lakefeed.tls.Trust;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.iceberg.relocated.com.google.common.util.concurrent.ThreadFactoryBuilder;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskFailedReason;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Prepares executors in other JVMs, and sends their counts of S3 requests to the driver. Set {@code
 * spark.plugins=io.lakefeed.JvmPlugin}.
 *
 * <p>An executor fetches the driver's {@link Trust} when it starts, before its first task. So the executor's machine
 * needs no file, and the private key is in no Spark setting and no command line. The key is sent over Spark's own
 * connection, which {@code spark.authenticate} and {@code spark.network.crypto.enabled} protect.
 *
 * <p>When a task ends, and once a second while the totals change or a task waits, an executor sends the totals of its
 * {@link RequestMeter} and the server that its tasks wait for ({@link Waits}). If a message is lost, the next one has
 * the newer totals. If an executor is lost, the driver keeps its last totals.
 */
public final class JvmPlugin implements SparkPlugin {
    /** The executor id that Spark gives the driver's own JVM, which needs no preparation. */
    private static final String DRIVER = "driver";

    /** The executor's request for {@link Trust}: a string, because executors get lakefeed's classes only later. */
    private static final String TRUST = "lakefeed trust";

    private static final Logger LOG = LoggerFactory.getLogger(JvmPlugin.class);

    /** The requests of an executor since its start, and the server that its tasks wait for. */
    private record Report(String executor, List<RequestCount> counts, String waits) implements Serializable {}

    @Override
    public DriverPlugin driverPlugin() {
        return new DriverPlugin() {
            private String application;

            @Override
            public Map<String, String> init(SparkContext context, PluginContext plugin) {
                application = context.applicationId();
                return Map.of();
            }

            @Override
            public Object receive(Object message) {
                if (message instanceof Report report) {
                    RequestMeter.putExecutor(application + " " + report.executor(), report.counts());
                    Waits.putExecutor(application + " " + report.executor(), report.waits());
                }
                return TRUST.equals(message) ? Trust.installed() : null;
            }
        };
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new Executor();
    }

    private static final class Executor implements ExecutorPlugin {
        private PluginContext context;
        private ScheduledExecutorService schedule;
        private Report last;

        @Override
        public void init(PluginContext context, Map<String, String> extra) {
            if (DRIVER.equals(context.executorID())) {
                return;
            }
            try {
                String[] trust = (String[]) context.ask(TRUST);
                Trust.install(trust[0], trust[1], trust[2]);
            } catch (Exception failed) {
                // Fail here: without the certificates a task would fail later, with an error that hides the cause.
                throw new IllegalStateException(
                        "the executor cannot install the driver's certificates: see the cause below", failed);
            }
            ColumnarModel.install();
            this.context = context;
            schedule = Executors.newSingleThreadScheduledExecutor(
                    new ThreadFactoryBuilder().setDaemon(true).setNameFormat("lakefeed-request-meter").build());
            schedule.scheduleWithFixedDelay(this::report, 1, 1, TimeUnit.SECONDS);
        }

        @Override
        public void onTaskSucceeded() {
            report();
        }

        @Override
        public void onTaskFailed(TaskFailedReason reason) {
            report();
        }

        @Override
        public void shutdown() {
            if (schedule != null) {
                schedule.shutdownNow();
                report();
            }
        }

        private synchronized void report() {
            if (context == null) {
                return;
            }
            Report now = new Report(context.executorID(), new ArrayList<>(RequestMeter.own()), Waits.own());
            if (now.equals(last) && now.waits().isEmpty()) {
                return;
            }
            try {
                context.send(now);
                last = now;
            } catch (IOException | RuntimeException unreachable) {
                // A lost message does no harm, because the next message has newer totals.
                LOG.debug("The totals of S3 requests did not reach the driver; they are sent again.", unreachable);
            }
        }
    }
}
