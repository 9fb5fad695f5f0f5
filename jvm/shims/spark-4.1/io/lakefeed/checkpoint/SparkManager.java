package io.lakefeed.checkpoint;

import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/** Spark's interface for checkpoint managers, whose package depends on the line of Spark. */
interface SparkManager extends CheckpointFileManager {
    /** A file that becomes visible when it is closed. */
    abstract class Output extends CancellableFSDataOutputStream {
        Output(OutputStream target) {
            super(target);
        }
    }

    /** Returns the manager that Spark uses if {@code checkpointFileManagerClass} is not set. */
    static SparkManager ofSpark(Path path, Configuration conf) {
        try {
            return new OfContext(path, conf);
        } catch (Exception undeclared) {
            // Scala declares no checked exceptions, so javac refuses to catch UnsupportedFileSystemException by its
            // name.
            if (undeclared instanceof UnsupportedFileSystemException) {
                return new OfFileSystem(path, conf);
            }
            throw undeclared;
        }
    }

    /** Spark's manager for file systems with a FileContext. */
    final class OfContext extends FileContextBasedCheckpointFileManager implements SparkManager {
        OfContext(Path path, Configuration conf) {
            super(path, conf);
        }
    }

    /** Spark's manager for all other file systems. */
    final class OfFileSystem extends FileSystemBasedCheckpointFileManager implements SparkManager {
        OfFileSystem(Path path, Configuration conf) {
            super(path, conf);
        }
    }
}
