package io.lakefeed.checkpoint;

import io.lakefeed.SparkLine;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.util.VersionInfo;

/**
 * Writes Spark's checkpoint to S3 with one request for each new log entry; if two writers write an entry, the store
 * accepts only the first.
 *
 * <p>The class works without the rest of lakefeed: put this jar on the class path of driver and executors, and set
 * {@code spark.sql.streaming.checkpointFileManagerClass=io.lakefeed.checkpoint.ObjectStoreCheckpointFileManager}.
 * {@link Settings} lists more keys. On file systems other than S3A it does what Spark does by default.
 *
 * <p>It requires Hadoop 3.4.2, and a store that honours {@code If-None-Match: *}, which {@link
 * StoreProof} checks at the start.
 */
public final class ObjectStoreCheckpointFileManager extends SparkManager {
    /**
     * Creates the manager of one directory.
     *
     * @param path the checkpoint location, the directory of a log, or the directory of a state store
     * @param conf the settings of Hadoop and of the session
     */
    public ObjectStoreCheckpointFileManager(Path path, Configuration conf) throws IOException {
        super(own(path, conf), path, conf);
    }

    /** Returns the manager of a directory on S3A; null for another file system. */
    private static Methods own(Path path, Configuration conf) throws IOException {
        SparkLine.require();
        try {
            Class.forName("org.apache.hadoop.fs.Options$CreateFileOptionKeys");
        } catch (ClassNotFoundException older) {
            throw new IllegalStateException("the checkpoint manager needs Hadoop 3.4.2, whose S3A can write"
                    + " conditionally, and this is Hadoop " + VersionInfo.getVersion()
                    + ": put hadoop-client-api, hadoop-client-runtime and hadoop-aws 3.4.2 before Spark's jars, in"
                    + " spark.driver.extraClassPath and spark.executor.extraClassPath", older);
        }
        // Hadoop caches the file system, so there is one S3 client in the JVM.
        return path.getFileSystem(conf) instanceof S3AFileSystem ? new S3ACheckpoint(path, conf) : null;
    }

    public static void flush() throws IOException {
        Bucket.flushAll();
    }
}
