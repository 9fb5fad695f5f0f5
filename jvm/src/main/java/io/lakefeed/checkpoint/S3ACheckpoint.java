package io.lakefeed.checkpoint;

import java.io.ByteArrayInputStream;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Options.OpenFileOptions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.PositionedReadable;
import org.apache.hadoop.fs.Seekable;
import org.apache.hadoop.util.functional.CallableRaisingIOE;
import org.apache.hadoop.util.functional.FutureIO;

/**
 * Manages a checkpoint on S3A, where directories exist only as prefixes of keys.
 *
 * <p>{@link LogDirectory} lists and reads metadata logs from memory. The files of state stores are always read from the
 * store, because any executor may overwrite them.
 */
final class S3ACheckpoint implements SparkManager {
    /** Matches names with a UUID, as RocksDB's files have: such a name is written only once. */
    private static final Pattern UNIQUE = Pattern.compile(".*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}.*");

    private final Path root;
    private final Settings settings;
    private final Bucket bucket;
    /** This directory's log; null if it is not a metadata log, or {@code answer-from-memory} is off. */
    private final LogDirectory log;

    /** The names of known files, by directory. For any other name, a delete first asks the store if it is a file. */
    private final Map<Path, Set<String>> files = new ConcurrentHashMap<>();
    private final Set<Path> made = ConcurrentHashMap.newKeySet();

    S3ACheckpoint(Path path, Configuration conf) throws IOException {
        this.settings = Settings.of(conf);
        this.bucket = Bucket.of(path, conf, settings);
        this.root = qualified(path);
        this.log = settings.answerFromMemory() && LogDirectory.isLog(root)
                ? bucket.looks.log(root, settings.cacheBytes())
                : null;
    }

    @Override
    public EntryOutput createAtomic(Path given, boolean overwriteIfPossible) {
        return checked(() -> {
            Path path = qualified(given);
            boolean exclusive = !overwriteIfPossible;
            if (exclusive) {
                bucket.proof.demand(path.getParent(), settings);
            }
            bucket.looks.touched(path);
            int keep = exclusive || isEntry(path) ? settings.cacheBytes() : 0;
            return EntryOutput.begin(
                    bucket, path, exclusive, !settings.allowUnconditionalWrites(), keep, outcome(path));
        });
    }

    private EntryOutput.Outcome outcome(Path path) {
        return new EntryOutput.Outcome() {
            @Override
            public void written(long length, byte[] content) {
                if (isEntry(path)) {
                    log.written(path.getName(), length, content);
                } else {
                    files.computeIfAbsent(path.getParent(), each -> ConcurrentHashMap.newKeySet())
                            .add(path.getName());
                }
            }

            @Override
            public void uncertain() {
                if (log != null) {
                    log.forget();
                }
            }
        };
    }

    @Override
    public FSDataInputStream open(Path given) {
        return checked(() -> {
            Path path = qualified(given);
            if (bucket.deletions.isDeleted(Bucket.key(path))) {
                throw absent(path);
            }
            if (isEntry(path)) {
                return openEntry(path);
            }
            Optional<Long> length = bucket.looks.length(path);
            return length.isPresent() ? openKnown(path, length.get()) : bucket.files().open(path);
        });
    }

    private FSDataInputStream openEntry(Path path) throws IOException {
        FileStatus status = log.find(path.getName());
        if (status == null) {
            throw absent(path);
        }
        byte[] content = log.content(path.getName());
        if (content == null) {
            FSDataInputStream in = openKnown(path, status.getLen());
            if (status.getLen() > settings.cacheBytes()) {
                return in;
            }
            try (in) {
                content = in.readNBytes((int) status.getLen());
            }
            if (content.length < status.getLen()) {
                throw new IOException(path + " has " + content.length + " bytes where the store had listed "
                        + status.getLen());
            }
            log.keep(path.getName(), content);
        }
        return new FSDataInputStream(new EntryInput(content));
    }

    /** Opens a file of known length, so that S3A sends no HEAD request. */
    private FSDataInputStream openKnown(Path path, long length) throws IOException {
        return FutureIO.awaitFuture(bucket.files()
                .openFile(path)
                .mustLong(OpenFileOptions.FS_OPTION_OPENFILE_LENGTH, length)
                .opt(
                        OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY,
                        OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY_WHOLE_FILE)
                .build());
    }

    @Override
    public FileStatus[] list(Path path) {
        return list(path, each -> true);
    }

    @Override
    public FileStatus[] list(Path given, PathFilter filter) {
        return checked(() -> {
            Path path = qualified(given);
            List<FileStatus> found = log != null && path.equals(root) ? log.all() : listed(path);
            if (found.isEmpty() && !made.contains(path)) {
                throw absent(path);
            }
            return found.stream()
                    .filter(each -> filter.accept(each.getPath()))
                    .toArray(FileStatus[]::new);
        });
    }

    private List<FileStatus> listed(Path directory) throws IOException {
        String prefix = Bucket.prefix(directory);
        Bucket.Listing listing = bucket.list(prefix);
        List<FileStatus> found = new ArrayList<>();
        Set<String> names = ConcurrentHashMap.newKeySet();
        for (Bucket.Item item : listing.objects()) {
            String name = item.key().substring(prefix.length());
            if (!name.isEmpty() && !bucket.deletions.isDeleted(item.key())) {
                names.add(name);
                found.add(LogDirectory.status(new Path(directory, name), item.length(), item.modified()));
            }
        }
        files.put(directory, names);
        listing.directories().forEach(each -> found.add(new FileStatus(0, true, 1, 0, 0, bucket.path(each))));
        return found;
    }

    @Override
    public void mkdirs(Path path) {
        made.add(checked(() -> qualified(path)));
    }

    @Override
    public boolean exists(Path given) {
        return checked(() -> {
            Path path = qualified(given);
            String key = Bucket.key(path);
            if (key.isEmpty() || made.contains(path)) {
                return true;
            }
            if (log != null && path.equals(root)) {
                return !log.all().isEmpty();
            }
            if (isEntry(path)) {
                return log.find(path.getName()) != null;
            }
            Optional<Boolean> known = bucket.looks.shows(path);
            if (known.isPresent()) {
                return known.get();
            }
            Found found = look(key);
            return found.directory() || found.file() && !bucket.deletions.isDeleted(key);
        });
    }

    @Override
    public void delete(Path given) {
        checked(() -> {
            Path path = qualified(given);
            String key = Bucket.key(path);
            bucket.looks.forget(path);
            if (isEntry(path)) {
                deleteEntry(path.getName(), key);
            } else if (files.getOrDefault(path.getParent(), Set.of()).contains(path.getName())) {
                deleteFile(path, key);
            } else {
                deleteUnknown(path, key);
            }
            return null;
        });
    }

    private void deleteEntry(String name, String key) throws IOException {
        FileStatus status = log.find(name);
        if (status == null) {
            return;
        }
        if (status.isDirectory()) {
            bucket.removal.removeAll(key + "/");
        } else if (log.hasLater(name)) {
            bucket.deletions.later(key);
        } else {
            // Only a rollback deletes the newest entry. Delete it now, because a driver may soon write it again.
            bucket.deletions.now(key);
        }
        log.deleted(name);
    }

    private void deleteFile(Path path, String key) throws IOException {
        Set<String> siblings = files.get(path.getParent());
        long batch = LogDirectory.batch(path.getName());
        boolean expired = batch >= 0 && siblings.stream().anyMatch(each -> LogDirectory.batch(each) > batch);
        if (expired || UNIQUE.matcher(path.getName()).matches()) {
            bucket.deletions.later(key);
        } else {
            bucket.deletions.now(key);
        }
        siblings.remove(path.getName());
    }

    private void deleteUnknown(Path path, String key) throws IOException {
        Found found = look(key);
        if (found.file()) {
            bucket.deletions.now(key);
        }
        if (found.directory()) {
            bucket.removal.removeAll(key.isEmpty() ? key : key + "/");
        }
        made.remove(path);
        if (log != null && (path.equals(root) || Bucket.prefix(root).startsWith(Bucket.prefix(path)))) {
            log.forget();
        }
    }

    @Override
    public boolean isLocal() {
        return false;
    }

    @Override
    public Path createCheckpointDirectory() {
        return checked(() -> {
            bucket.proof.demand(root, settings);
            made.add(root);
            if (settings.answerFromMemory()) {
                bucket.looks.begin(root);
            }
            return root;
        });
    }

    @Override
    public void close() {
        checked(() -> {
            bucket.deletions.flush();
            return null;
        });
    }

    private record Found(boolean file, boolean directory) {}

    /** Sends one request to learn whether {@code key} is a file, a directory or both. */
    private Found look(String key) throws IOException {
        Bucket.Listing listing = bucket.list(key);
        return new Found(
                listing.objects().stream().anyMatch(each -> each.key().equals(key)),
                listing.directories().contains(key + "/"));
    }

    private boolean isEntry(Path path) {
        return log != null && log.holds(path);
    }

    private Path qualified(Path path) throws IOException {
        return bucket.files().makeQualified(path);
    }

    private static FileNotFoundException absent(Path path) {
        return new FileNotFoundException("No such file or directory: " + path);
    }

    /** Runs an action in a method that declares no exceptions; throws the action's exceptions, which Spark catches. */
    private static <T> T checked(CallableRaisingIOE<T> action) {
        try {
            return action.apply();
        } catch (IOException failed) {
            throw S3ACheckpoint.<RuntimeException>undeclared(failed);
        }
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> E undeclared(Throwable failed) throws E {
        throw (E) failed;
    }

    static final class EntryInput extends ByteArrayInputStream implements Seekable, PositionedReadable {
        EntryInput(byte[] content) {
            super(content);
        }

        @Override
        public synchronized void seek(long position) throws EOFException {
            if (position < 0 || position > count) {
                throw new EOFException("cannot seek to " + position + " in a file of " + count + " bytes");
            }
            pos = (int) position;
        }

        @Override
        public synchronized long getPos() {
            return pos;
        }

        @Override
        public boolean seekToNewSource(long target) {
            return false;
        }

        @Override
        public int read(long position, byte[] buffer, int offset, int length) {
            if (length == 0) {
                return 0;
            }
            if (position < 0 || position >= count) {
                return -1;
            }
            int available = (int) Math.min(length, count - position);
            System.arraycopy(buf, (int) position, buffer, offset, available);
            return available;
        }

        @Override
        public void readFully(long position, byte[] buffer, int offset, int length) throws EOFException {
            if (read(position, buffer, offset, length) < length) {
                throw new EOFException("cannot read " + length + " bytes at " + position + " in a file of " + count + " bytes");
            }
        }

        @Override
        public void readFully(long position, byte[] buffer) throws EOFException {
            readFully(position, buffer, 0, buffer.length);
        }
    }
}
