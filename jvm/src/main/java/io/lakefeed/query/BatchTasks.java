package io.lakefeed.query;

import io.lakefeed.http.Waits;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.JobExecutionStatus;
import org.apache.spark.SparkContext;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.JobData;
import org.apache.spark.status.api.v1.StageData;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Counts the tasks of the jobs that a streaming query now runs, by the data of Spark's status listener.
 *
 * <p>Python needs one call instead of a dozen. Executors get no request, because they send their counts with finished
 * tasks and heartbeats anyway.
 */
public final class BatchTasks {
    private BatchTasks() {}

    /**
     * Returns {@code done<TAB>tasks<TAB>records<TAB>waits} for the running jobs of one group; empty if no job runs.
     * {@code waits} is a server that a task waits for.
     *
     * <p>Several stages can read the same records, or a stage can read what another stage wrote. So {@code records} is
     * not a sum over stages, but the highest number of records that one stage has read.
     *
     * @param group the run id of a query, which Spark uses as the group of the query's jobs; null for the jobs of all
     *     queries
     */
    public static String of(SparkContext context, String group) {
        AppStatusStore store = context.statusStore();
        long done = 0;
        long tasks = 0;
        long records = 0;
        boolean found = false;
        for (JobData job : CollectionConverters.asJava(store.jobsList(List.of(JobExecutionStatus.RUNNING)))) {
            if (group != null && !(job.jobGroup().isDefined() && group.equals(job.jobGroup().get()))) {
                continue;
            }
            found = true;
            done += job.numCompletedTasks();
            tasks += job.numTasks() - job.numSkippedTasks();
            for (Object id : CollectionConverters.asJava(job.stageIds())) {
                records = Math.max(records, inputRecords(store, (Integer) id));
            }
        }
        return found ? done + "\t" + Math.max(done, tasks) + "\t" + records + "\t" + Waits.any() : "";
    }

    private static long inputRecords(AppStatusStore store, int stage) {
        try {
            StageData data = store.lastStageAttempt(stage);
            return data.inputRecords();
        } catch (NoSuchElementException notSubmitted) {
            return 0;
        }
    }
}
