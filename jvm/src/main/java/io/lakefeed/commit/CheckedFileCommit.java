package io.lakefeed.commit;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;

/**
 * Commits a batch to {@code _spark_metadata} as Spark does, unless its {@link Outcomes} refuse it: {@code
 * spark.sql.streaming.commitProtocolClass}.
 */
public final class CheckedFileCommit extends ManifestFileCommitProtocol {
    private static final long serialVersionUID = 1L;
    /** The sink's path and the id of the commit in progress: Spark creates these objects and passes only the path. */
    private static final Map<String, String> EXPECTED = new ConcurrentHashMap<>();

    private final String path;

    /** Spark creates one for each batch. */
    public CheckedFileCommit(String jobId, String path) {
        super(jobId, path);
        this.path = path;
    }

    /** Announces the id of the next commit below {@code path}. */
    public static void expect(String path, String commitId) {
        EXPECTED.put(path, commitId);
    }

    /** Ends a commit. Returns false if Spark left it out because the log has the batch. */
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
