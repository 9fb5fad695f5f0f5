package io.lakefeed.checkpoint;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.util.functional.FutureIO;

/**
 * Lists and reads the files of a checkpoint location before a query starts, with one LIST for all of their names.
 *
 * <p>The class is not meant for locations with state stores, which can have many thousands of files.
 */
public final class CheckpointFiles {
    /** Spark's files in the order of their removal: if it is interrupted, logs without {@code metadata} remain. */
    private static final String[] OF_SPARK = {"metadata", "offsets", "commits", "sources"};

    private static final String STATE = "state";

    private final Path root;
    private final FileSystem files;
    private Map<String, FileStatus> found;

    public CheckpointFiles(String location, Configuration conf) throws IOException {
        this.root = new Path(location);
        this.files = root.getFileSystem(conf);
    }

    /** Returns the files' names relative to the location, such as {@code offsets/12}, one on each line. */
    public String names() throws IOException {
        return String.join("\n", found().keySet());
    }

    public void forget() {
        found = null;
    }

    public String read(String name) throws IOException {
        FileStatus status = found().get(name);
        if (status == null) {
            throw new FileNotFoundException(name);
        }
        try (var stream = FutureIO.awaitFuture(files.openFile(status.getPath()).withFileStatus(status).build())) {
            return new String(stream.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    /** Removes Spark's files so that a query starts from the beginning; other files stay. */
    public void discard() throws IOException {
        // Send the deletes that still wait: later they would delete the next query's files of the same names.
        Bucket.flush(files);
        boolean hasState = found().keySet().stream().anyMatch(each -> each.startsWith(STATE + "/"));
        for (String name : OF_SPARK) {
            files.delete(new Path(root, name), true);
        }
        if (hasState) {
            files.delete(new Path(root, STATE), true);
        }
        found = null;
    }

    private Map<String, FileStatus> found() throws IOException {
        if (found == null) {
            found = new HashMap<>();
            String prefix = files.makeQualified(root).toUri().getPath() + "/";
            try {
                RemoteIterator<LocatedFileStatus> all = files.listFiles(root, true);
                while (all.hasNext()) {
                    FileStatus each = all.next();
                    found.put(each.getPath().toUri().getPath().substring(prefix.length()), each);
                }
            } catch (FileNotFoundException nothing) {
                // The location does not exist yet.
            }
        }
        return found;
    }
}
