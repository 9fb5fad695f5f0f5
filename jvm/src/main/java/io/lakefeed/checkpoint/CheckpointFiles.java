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
 * The files of a checkpoint location as they are before a query starts on it: one LIST for all of their names.
 *
 * <p>Not for locations with state stores, which can have many thousands of files.
 */
public final class CheckpointFiles {
    /** Metadata goes first: a location with logs and without it is one whose removal was cut off. */
    private static final String[] OF_SPARK = {"metadata", "offsets", "commits", "sources"};

    /** What a query with state has remembered; another query must not find it. */
    private static final String STATE = "state";

    private final Path root;
    private final FileSystem files;
    private Map<String, FileStatus> found;

    /** Asks nothing yet. */
    public CheckpointFiles(String location, Configuration conf) throws IOException {
        this.root = new Path(location);
        this.files = root.getFileSystem(conf);
    }

    /** Names relative to the location, such as {@code offsets/12}, a line each: one walk over the bridge to Python. */
    public String names() throws IOException {
        return String.join("\n", found().keySet());
    }

    /** What was seen is forgotten. */
    public void forget() {
        found = null;
    }

    /** A file's text. */
    public String read(String name) throws IOException {
        FileStatus status = found().get(name);
        if (status == null) {
            throw new FileNotFoundException(name);
        }
        try (var stream = FutureIO.awaitFuture(
                files.openFile(status.getPath()).withFileStatus(status).build())) {
            return new String(stream.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    /** Removes what Spark keeps there, so that a query begins anew; other files stay. */
    public void discard() throws IOException {
        // A removal that waits would take away what is written under the same name next.
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
                // A location that is new.
            }
        }
        return found;
    }
}
