package io.lakefeed.delta;

import io.delta.storage.S3SingleDriverLogStore;
import io.delta.storage.internal.S3LogStoreUtil;
import io.lakefeed.checkpoint.ObjectStoreCheckpointFileManager;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;

/**
 * Writes the files of a table's log. If two drivers write the same version, only one of them succeeds.
 *
 * <p>Delta's own store for S3 looks whether the file exists and then overwrites it, under a lock of one JVM. This store
 * sends one PUT with {@code If-None-Match: *}; if the answer is lost, the object's write id shows which driver has
 * written it. On a local disk it creates a hard link, which fails if the name exists.
 */
public final class ExclusiveLogStore extends S3SingleDriverLogStore {
    /**
     * Creates the store.
     *
     * @param conf Hadoop's settings and the session's
     */
    public ExclusiveLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public Iterator<FileStatus> listFrom(org.apache.hadoop.fs.Path path, Configuration conf) throws IOException {
        FileSystem files = path.getFileSystem(conf);
        if (files instanceof LocalFileSystem) {
            return super.listFrom(path, conf);
        }
        // One request. Delta's own store first looks whether the directory exists, with two requests.
        FileStatus[] found = S3LogStoreUtil.s3ListFromArray(files, files.makeQualified(path), path.getParent());
        if (found.length == 0 && !files.exists(path.getParent())) {
            throw new FileNotFoundException("No such file or directory: " + path.getParent());
        }
        return Arrays.stream(found)
                .filter(each -> each.getPath().getName().compareTo(path.getName()) >= 0)
                .sorted(Comparator.comparing(each -> each.getPath().getName()))
                .iterator();
    }

    @Override
    public void write(
            org.apache.hadoop.fs.Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
            throws IOException {
        if (overwrite) {
            super.write(path, actions, true, conf);
            return;
        }
        try {
            if (path.getFileSystem(conf) instanceof LocalFileSystem) {
                link(Path.of(path.toUri().getPath()), actions);
            } else {
                put(path, actions, conf);
            }
        } catch (org.apache.hadoop.fs.FileAlreadyExistsException taken) {
            // Delta looks for conflicts after this exception, and only after this one.
            FileAlreadyExistsException exists = new FileAlreadyExistsException(path.toString());
            exists.initCause(taken);
            throw exists;
        }
    }

    private static void put(org.apache.hadoop.fs.Path path, Iterator<String> actions, Configuration given)
            throws IOException {
        Configuration conf = new Configuration(given);
        // The memory of a checkpoint's log knows Spark's names only.
        conf.setBoolean("lakefeed.checkpoint.answer-from-memory", false);
        var files = new ObjectStoreCheckpointFileManager(path.getParent(), conf);
        CancellableFSDataOutputStream target = files.createAtomic(path, false);
        try {
            writeLines(target, actions);
        } catch (IOException | RuntimeException failed) {
            target.cancel();
            throw failed;
        }
        target.close();
    }

    private static void link(Path path, Iterator<String> actions) throws IOException {
        Path partial = path.resolveSibling("." + path.getFileName() + "." + UUID.randomUUID() + ".tmp");
        try {
            try (FileChannel channel = FileChannel.open(
                            partial, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
                    OutputStream target = java.nio.channels.Channels.newOutputStream(channel)) {
                writeLines(target, actions);
                channel.force(true);
            }
            Files.createLink(path, partial);
        } finally {
            Files.deleteIfExists(partial);
        }
        try (FileChannel folder = FileChannel.open(path.getParent(), StandardOpenOption.READ)) {
            folder.force(true);
        }
    }

    private static void writeLines(OutputStream target, Iterator<String> actions) throws IOException {
        StringBuilder lines = new StringBuilder();
        while (actions.hasNext()) {
            lines.append(actions.next()).append('\n');
        }
        target.write(lines.toString().getBytes(StandardCharsets.UTF_8));
    }
}
