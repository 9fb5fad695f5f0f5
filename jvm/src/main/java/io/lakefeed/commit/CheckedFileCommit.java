package io.lakefeed.commit;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;

/**
 * Spark's commit of a batch to {@code _spark_metadata}, refused if the batch's {@link Outcomes} are:
 * {@code spark.sql.streaming.commitProtocolClass}.
 */
public final class CheckedFileCommit extends ManifestFileCommitProtocol {
    private static final long serialVersionUID = 1L;
    /** Sink's path → id of the commit that is being written; Spark makes these objects itself and tells only the path. */
    private static final Map<String, String> EXPECTED = new ConcurrentHashMap<>();

    private final String path;

    /** Made by Spark for each batch. */
    public CheckedFileCommit(String jobId, String path) {
        super(jobId, path);
        this.path = path;
    }

    /** The next commit below {@code path} is this one. */
    public static void expect(String path, String commitId) {
        EXPECTED.put(path, commitId);
    }

    /** The commit is over; false if Spark has left it out, since the log has the batch. */
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
