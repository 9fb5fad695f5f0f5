package io.lakefeed.s3;

import io.lakefeed.http.Waits;
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
 * Sends the executors' counts to the driver's {@link RequestMeter}, and what they wait for to its {@link Waits}:
 * {@code spark.plugins=io.lakefeed.s3.MeterPlugin}.
 *
 * <p>An executor sends its counts since its start: when a task ends, and once a second while they change or a task
 * waits. So a lost message only delays the counts, and of a lost executor the driver keeps the last ones. With a local
 * master, driver and executor are one JVM, and nothing is sent.
 */
public final class MeterPlugin implements SparkPlugin {
    /** Spark's id of the executor in the driver's JVM. */
    private static final String DRIVER = "driver";

    private static final Logger LOG = LoggerFactory.getLogger(MeterPlugin.class);

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
                return null;
            }
        };
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new Teller();
    }

    private static final class Teller implements ExecutorPlugin {
        private PluginContext context;
        private ScheduledExecutorService schedule;
        private Said reported;

        @Override
        public void init(PluginContext context, Map<String, String> extra) {
            if (DRIVER.equals(context.executorID())) {
                return;
            }
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
