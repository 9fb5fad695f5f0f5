package io.lakefeed.s3;

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
 * Brings the executors' counts to the driver's {@link RequestMeter}: {@code spark.plugins=io.lakefeed.s3.MeterPlugin}.
 *
 * <p>An executor sends all that it has counted since it began, when a task ends and each second in which it changed.
 * So a lost message costs nothing but time, and an executor that is gone keeps counting with what it last said.
 * With a local master driver and executor are one JVM, and nothing is sent.
 */
public final class MeterPlugin implements SparkPlugin {
    /** The id that Spark gives the executor inside the driver's JVM. */
    private static final String DRIVER = "driver";

    private static final Logger LOG = LoggerFactory.getLogger(MeterPlugin.class);

    /** What an executor has counted since it began. */
    private record Said(String executor, List<RequestCount> counts) implements Serializable {}

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
        private List<RequestCount> told = List.of();

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
            List<RequestCount> now = new ArrayList<>(RequestMeter.own());
            if (now.equals(told)) {
                return;
            }
            try {
                context.send(new Said(context.executorID(), now));
                told = now;
            } catch (IOException | RuntimeException unreachable) {
                // The next message tells all again.
                LOG.debug("The counts of S3 requests did not reach the driver.", unreachable);
            }
        }
    }
}
