package io.lakefeed.s3;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.s3a.Constants;
import org.apache.hadoop.fs.s3a.S3AFileStatus;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.util.Progressable;

/**
 * Writes each of Spark's data files to S3 with a single request. Set {@code fs.s3a.impl=io.lakefeed.s3.DataFileSystem}.
 *
 * <p>S3A sends two requests before it creates a file, and Spark asks twice for the size of a file that it has just
 * written. Files with a UUID in their name, {@code part-…-<uuid>…}, need none of these requests, because no other file
 * has the name, and this class knows the size. S3A writes all other files, so that {@code create(path,
 * overwrite=false)} still refuses an existing file. The setting {@code fs.s3a.performance.flags=create} would overwrite
 * it.
 */
public final class DataFileSystem extends S3AFileSystem {
    private static final Pattern WRITTEN_ONCE = Pattern.compile("part-.*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*");
    /** How long a size is remembered: Spark asks for it when the file is closed, and when its task commits. */
    private static final long REMEMBERED_MILLIS = 60_000;

    private static final int REMEMBERED_FILES = 1024;

    private final Map<Path, FileStatus> written = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Path, FileStatus> eldest) {
            return size() > REMEMBERED_FILES;
        }
    };

    @Override
    public FSDataOutputStream create(
            Path path,
            FsPermission permission,
            boolean overwrite,
            int bufferSize,
            short replication,
            long blockSize,
            Progressable progress)
            throws IOException {
        // S3A's magic committer writes files below __magic itself, because it creates them only when their job commits.
        if (!WRITTEN_ONCE.matcher(path.getName()).matches() || path.toString().contains("__magic")) {
            return super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress);
        }
        forget(path);
        FSDataOutputStreamBuilder<?, ?> file = createFile(path);
        file.create().overwrite(true).recursive().bufferSize(bufferSize);
        if (progress != null) {
            file.progress(progress);
        }
        file.must(Constants.FS_S3A_CREATE_PERFORMANCE, true);
        return new Noted(file.build(), path);
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        FileStatus known = known(path);
        return known != null ? known : super.getFileStatus(path);
    }

    @Override
    public boolean rename(Path from, Path to) throws IOException {
        forget(from);
        forget(to);
        return super.rename(from, to);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        forget(path);
        return super.delete(path, recursive);
    }

    private FileStatus known(Path path) {
        synchronized (written) {
            if (written.isEmpty()) {
                return null;
            }
            FileStatus status = written.get(makeQualified(path));
            boolean fresh = status != null
                    && System.currentTimeMillis() - status.getModificationTime() < REMEMBERED_MILLIS;
            return fresh ? status : null;
        }
    }

    private void remember(Path path, long length) {
        Path qualified = makeQualified(path);
        FileStatus status = new S3AFileStatus(
                length,
                System.currentTimeMillis(),
                qualified,
                getDefaultBlockSize(qualified),
                getUsername(),
                null,
                null);
        synchronized (written) {
            written.put(qualified, status);
        }
    }

    private void forget(Path path) {
        synchronized (written) {
            if (!written.isEmpty()) {
                String gone = makeQualified(path).toString();
                written.keySet().removeIf(each -> each.toString().equals(gone)
                        || each.toString().startsWith(gone + Path.SEPARATOR));
            }
        }
    }

    private final class Noted extends FSDataOutputStream {
        private final Path path;
        private boolean ended;

        Noted(FSDataOutputStream file, Path path) throws IOException {
            super(file.getWrappedStream(), null);
            this.path = path;
        }

        @Override
        public void close() throws IOException {
            boolean first = !ended;
            ended = true;
            super.close();
            if (first) {
                remember(path, getPos());
            }
        }

        @Override
        public AbortableResult abort() {
            ended = true;
            return super.abort();
        }
    }
}
