package io.lakefeed.commit;

import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;

/**
 * Spark's commit of files that a batch job writes, refused if the records' {@link Outcomes} are:
 * {@code spark.sql.sources.commitProtocolClass}. The write's option {@value Ledger#COMMIT_ID} says which outcomes.
 */
public final class CheckedExport extends SQLHadoopMapReduceCommitProtocol {
    private static final long serialVersionUID = 1L;

    /** Made by Spark for each write. */
    public CheckedExport(String jobId, String path, boolean dynamicPartitionOverwrite) {
        super(jobId, path, dynamicPartitionOverwrite);
    }

    @Override
    public void commitJob(
            JobContext job, scala.collection.immutable.Seq<FileCommitProtocol.TaskCommitMessage> written) {
        Outcomes outcomes = Outcomes.of(job.getConfiguration().get(Ledger.COMMIT_ID));
        if (outcomes != null) {
            outcomes.check();
        }
        super.commitJob(job, written);
    }
}
