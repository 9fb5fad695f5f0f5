package io.lakefeed.bench;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryProgressEvent;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Notes when the jobs and tasks of each micro-batch ran, beside Spark's report of the batch.
 *
 * <p>The listener is in Java, so that the JVM need not call Python for each event.
 */
public final class BatchTimes extends SparkListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String BATCH_ID = "streaming.sql.batchId";

    private final SparkContext context;
    private final Map<Integer, Batch> ofJobs = new HashMap<>();
    private final Map<Integer, Batch> ofStages = new HashMap<>();
    private final Map<Long, Batch> running = new HashMap<>();
    private final List<String> finished = new ArrayList<>();

    /** The times of one batch, in milliseconds since 1970: begin and end of each job, and of each task. */
    private record Batch(List<long[]> jobs, List<long[]> tasks) {
        Batch() {
            this(new ArrayList<>(), new ArrayList<>());
        }
    }

    private BatchTimes(SparkContext context) {
        this.context = context;
    }

    /** Begins to note times, until {@link #end}. Only one query may run at a time. */
    public static BatchTimes begin(SparkContext context) {
        BatchTimes times = new BatchTimes(context);
        context.addSparkListener(times);
        return times;
    }

    /** Stops, and returns a JSON list with {@code jobs}, {@code tasks} and Spark's {@code report} of each batch. */
    public synchronized String end() {
        context.removeSparkListener(this);
        return finished.toString();
    }

    @Override
    public synchronized void onJobStart(SparkListenerJobStart started) {
        String id = started.properties() == null ? null : started.properties().getProperty(BATCH_ID);
        if (id == null) {
            return;
        }
        Batch batch = running.computeIfAbsent(Long.valueOf(id), each -> new Batch());
        batch.jobs().add(new long[] {started.time(), started.time()});
        ofJobs.put(started.jobId(), batch);
        CollectionConverters.asJava(started.stageIds()).forEach(stage -> ofStages.put((Integer) stage, batch));
    }

    @Override
    public synchronized void onTaskEnd(SparkListenerTaskEnd ended) {
        Batch batch = ofStages.get(ended.stageId());
        if (batch != null) {
            batch.tasks().add(new long[] {ended.taskInfo().launchTime(), ended.taskInfo().finishTime()});
        }
    }

    @Override
    public synchronized void onJobEnd(SparkListenerJobEnd ended) {
        Batch batch = ofJobs.remove(ended.jobId());
        if (batch != null) {
            batch.jobs().get(batch.jobs().size() - 1)[1] = ended.time();
        }
    }

    @Override
    public synchronized void onOtherEvent(SparkListenerEvent event) {
        if (!(event instanceof QueryProgressEvent progress)
                || !progress.progress().durationMs().containsKey("addBatch")) {
            return;
        }
        Batch batch = running.remove(progress.progress().batchId());
        try {
            String times = JSON.writeValueAsString(batch == null ? new Batch() : batch);
            finished.add(times.substring(0, times.length() - 1) + ",\"report\":" + progress.progress().json() + "}");
        } catch (JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
        ofStages.values().removeIf(each -> each == batch);
    }
}
