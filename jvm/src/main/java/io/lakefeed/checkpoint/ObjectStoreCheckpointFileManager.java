package io.lakefeed.checkpoint;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Writes Spark's checkpoint to S3 with one request for each new log entry, and lets the store decide which writer is
 * first.
 *
 * <p>It works alone, with this jar on the class path of driver and executors and one setting: {@code
 * spark.sql.streaming.checkpointFileManagerClass=io.lakefeed.checkpoint.ObjectStoreCheckpointFileManager}. All other
 * keys are those of {@link Settings}. On file systems other than S3A it does what Spark does by default.
 *
 * <p>It requires Spark 4.1 and Hadoop 3.4.2, and a store that honours {@code If-None-Match: *}, which it proves at the
 * start.
 */
public final class ObjectStoreCheckpointFileManager implements CheckpointFileManager {
    private final CheckpointFileManager chosen;

    /**
     * Spark creates one for the checkpoint location, for each log, and on executors for each state store.
     *
     * @param path the checkpoint location, or the directory of the log or of the state store
     * @param conf Hadoop's settings together with the session's
     */
    public ObjectStoreCheckpointFileManager(Path path, Configuration conf) throws IOException {
        // Hadoop's cache makes this one file system, and so one S3 client, for the whole JVM.
        FileSystem files = path.getFileSystem(conf);
        this.chosen = files instanceof S3AFileSystem ? new S3ACheckpoint(path, conf) : sparksDefault(path, conf);
    }

    /** Chooses as {@code CheckpointFileManager.create} does without a class. */
    private static CheckpointFileManager sparksDefault(Path path, Configuration conf) {
        try {
            return new FileContextBasedCheckpointFileManager(path, conf);
        } catch (Exception undeclared) {
            // Scala declares no checked exceptions, so the compiler would refuse to catch this one by its name.
            if (undeclared instanceof UnsupportedFileSystemException) {
                return new FileSystemBasedCheckpointFileManager(path, conf);
            }
            throw undeclared;
        }
    }

    /** Sends the deletes that wait in this JVM; otherwise they are sent later, and when the JVM ends. */
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
