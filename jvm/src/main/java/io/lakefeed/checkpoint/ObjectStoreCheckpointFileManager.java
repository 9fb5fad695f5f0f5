package io.lakefeed.checkpoint;

import io.lakefeed.SparkLine;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
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
public final class ObjectStoreCheckpointFileManager implements SparkManager {
    private final SparkManager chosen;

    /**
     * Creates the manager of one directory.
     *
     * @param path the checkpoint location, the directory of a log, or the directory of a state store
     * @param conf the settings of Hadoop and of the session
     */
    public ObjectStoreCheckpointFileManager(Path path, Configuration conf) throws IOException {
        SparkLine.require();
        requireHadoop();
        // Hadoop caches the file system, so there is one S3 client in the JVM.
        boolean isS3 = path.getFileSystem(conf) instanceof S3AFileSystem;
        this.chosen = isS3 ? new S3ACheckpoint(path, conf) : SparkManager.ofSpark(path, conf);
    }

    private static void requireHadoop() {
        try {
            Class.forName("org.apache.hadoop.fs.Options$CreateFileOptionKeys");
        } catch (ClassNotFoundException older) {
            throw new IllegalStateException("the checkpoint manager needs Hadoop 3.4.2, whose S3A can write"
                    + " conditionally, and this is Hadoop " + VersionInfo.getVersion()
                    + ": put hadoop-client-api, hadoop-client-runtime and hadoop-aws 3.4.2 before Spark's jars, in"
                    + " spark.driver.extraClassPath and spark.executor.extraClassPath", older);
        }
    }

    public static void flush() throws IOException {
        Bucket.flushAll();
    }

    @Override
    public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
        return chosen.createAtomic(path, overwriteIfPossible);
    }

    @Override
    public FSDataInputStream open(Path path) {
        return chosen.open(path);
    }

    @Override
    public FileStatus[] list(Path path, PathFilter filter) {
        return chosen.list(path, filter);
    }

    @Override
    public FileStatus[] list(Path path) {
        return chosen.list(path);
    }

    @Override
    public void mkdirs(Path path) {
        chosen.mkdirs(path);
    }

    @Override
    public boolean exists(Path path) {
        return chosen.exists(path);
    }

    @Override
    public void delete(Path path) {
        chosen.delete(path);
    }

    @Override
    public boolean isLocal() {
        return chosen.isLocal();
    }

    @Override
    public Path createCheckpointDirectory() {
        return chosen.createCheckpointDirectory();
    }

    @Override
    public void close() {
        chosen.close();
    }
}
