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
import org.apache.spark.SparkContext;
import org.apache.spark.TaskFailedReason;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Prepares executors in other JVMs, and brings their counts to the driver: {@code spark.plugins=io.lakefeed.JvmPlugin}.
 *
 * <p>An executor asks for the driver's {@link Trust} when it starts, before its first task. So no file has to be on its
 * machine, and neither a Spark setting nor a command line has the key. It travels over Spark's own connection, which
 * {@code spark.authenticate} and {@code spark.network.crypto.enabled} protect.
 *
 * <p>An executor sends the counts of its {@link RequestMeter} since its start, and what it waits for ({@link Waits}):
 * when a task ends, and once a second while they change or a task waits. So a lost message only delays the counts, and of
 * a lost executor the driver keeps the last ones.
 */
public final class JvmPlugin implements SparkPlugin {
    /** Spark's id of the executor in the driver's JVM, which has all that the driver has. */
    private static final String DRIVER = "driver";

    /** A text, because an executor reads the answer before it has this application's jars. */
    private static final String TRUST = "lakefeed trust";

    private static final Logger LOG = LoggerFactory.getLogger(JvmPlugin.class);

    /** Spark creates it. */
    public JvmPlugin() {}

    /** The counts of an executor since its start, and the server that it waits for. */
    private record Said(String executor, List<RequestCount> counts, String waits) implements Serializable {}

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
                if (message instanceof Said said) {
                    RequestMeter.executorSaid(application + " " + said.executor(), said.counts());
                    Waits.executorSaid(application + " " + said.executor(), said.waits());
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
        private Said reported;

        @Override
        public void init(PluginContext context, Map<String, String> extra) {
            if (DRIVER.equals(context.executorID())) {
                return;
            }
            try {
                String[] said = (String[]) context.ask(TRUST);
                Trust.install(said[0], said[1], said[2]);
            } catch (Exception failed) {
                // An executor that trusts less than the driver would fail later, and in other words.
                throw new IllegalStateException("The driver's certificates were not installed", failed);
            }
            ColumnarModel.install();
            this.context = context;
            schedule = Executors.newSingleThreadScheduledExecutor(work -> {
                Thread thread = new Thread(work, "lakefeed-request-meter");
                thread.setDaemon(true);
                return thread;
            });
            schedule.scheduleWithFixedDelay(this::tell, 1, 1, TimeUnit.SECONDS);
        }

        @Override
        public void onTaskSucceeded() {
            tell();
        }

        @Override
        public void onTaskFailed(TaskFailedReason reason) {
            tell();
        }

        @Override
        public void shutdown() {
            if (schedule != null) {
                schedule.shutdownNow();
                tell();
            }
        }

        private synchronized void tell() {
            if (context == null) {
                return;
            }
            Said now = new Said(context.executorID(), new ArrayList<>(RequestMeter.own()), Waits.own());
            if (now.equals(reported) && now.waits().isEmpty()) {
                return;
            }
            try {
                context.send(now);
                reported = now;
            } catch (IOException | RuntimeException unreachable) {
                // The next message has all counts again.
                LOG.debug("The counts of S3 requests did not reach the driver.", unreachable);
            }
        }
    }
}
