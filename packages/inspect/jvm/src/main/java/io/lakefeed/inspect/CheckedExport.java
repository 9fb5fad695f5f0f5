package io.lakefeed.inspect;

import io.lakefeed.commit.FeedLedger;
import io.lakefeed.commit.Outcomes;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;

/**
 * Commits the files of a batch job as Spark does, unless the {@link Outcomes} of the job's records forbid it. Set it as
 * {@code spark.sql.sources.commitProtocolClass}. The write's option {@value FeedLedger#COMMIT_ID} is the id of the
 * outcomes.
 */
public final class CheckedExport extends SQLHadoopMapReduceCommitProtocol {
    private static final long serialVersionUID = 1L;

    public CheckedExport(String jobId, String path, boolean dynamicPartitionOverwrite) {
        super(jobId, path, dynamicPartitionOverwrite);
    }

    @Override
    public void commitJob(
            JobContext job, scala.collection.immutable.Seq<FileCommitProtocol.TaskCommitMessage> written) {
        Outcomes outcomes = Outcomes.of(job.getConfiguration().get(FeedLedger.COMMIT_ID));
        if (outcomes != null) {
            outcomes.check();
        }
        super.commitJob(job, written);
    }
}
