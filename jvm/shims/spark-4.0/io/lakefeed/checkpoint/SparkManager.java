package io.lakefeed.checkpoint;

import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.spark.sql.execution.streaming.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.FileContextBasedCheckpointFileManager;
import org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager;

/** Passes each call on to one of two managers: lakefeed's, or the one that Spark has for all file systems. */
abstract class SparkManager implements CheckpointFileManager {
    private final CheckpointFileManager chosen;

    /** The methods of a manager; the package of Spark's interface depends on the line of Spark. */
    interface Methods extends CheckpointFileManager {
        /** Spark calls this from 4.1 on; before, expired entries are deleted in time, or at the end of the JVM. */
        void close();
    }

    /** A file that becomes visible when it is closed. */
    abstract static class Output extends CancellableFSDataOutputStream {
        Output(OutputStream target) {
            super(target);
        }
    }

    /** @param own lakefeed's manager; null for the one that Spark uses if {@code checkpointFileManagerClass} is not set */
    SparkManager(Methods own, Path path, Configuration conf) {
        this.chosen = own != null ? own : sparksDefault(path, conf);
    }

    private static CheckpointFileManager sparksDefault(Path path, Configuration conf) {
        try {
            return new FileContextBasedCheckpointFileManager(path, conf);
        } catch (Exception undeclared) {
            // Scala declares no checked exceptions, so javac refuses to catch UnsupportedFileSystemException by its
            // name.
            if (undeclared instanceof UnsupportedFileSystemException) {
                return new FileSystemBasedCheckpointFileManager(path, conf);
            }
            throw undeclared;
        }
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
}
