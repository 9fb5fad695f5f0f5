package io.lakefeed.commit;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;

/**
 * Commits a batch to {@code _spark_metadata} as Spark does, unless its {@link Outcomes} refuse the commit. Set it as
 * {@code spark.sql.streaming.commitProtocolClass}.
 */
public final class CheckedFileCommit extends ManifestFileCommitProtocol {
    private static final long serialVersionUID = 1L;
    /** The ids of the current commits, by path of the sink: Spark passes only the path to the protocol. */
    private static final Map<String, String> EXPECTED = new ConcurrentHashMap<>();

    private final String path;

    public CheckedFileCommit(String jobId, String path) {
        super(jobId, path);
        this.path = path;
    }

    /** Sets the id of the next commit below {@code path}. */
    public static void expect(String path, String commitId) {
        EXPECTED.put(path, commitId);
    }

    /** Ends a commit; returns false if Spark has skipped it because the log already has the batch. */
    public static boolean forget(String path) {
        return EXPECTED.remove(path) == null;
    }

    @Override
    public void commitJob(
            JobContext job, scala.collection.immutable.Seq<FileCommitProtocol.TaskCommitMessage> written) {
        Outcomes outcomes = Outcomes.of(EXPECTED.get(path));
        if (outcomes != null) {
            outcomes.check();
        }
        super.commitJob(job, written);
        EXPECTED.remove(path);
    }
}
