package io.lakefeed.sink;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.iceberg.aws.s3.S3FileIO;
import org.apache.iceberg.inmemory.InMemoryInputFile;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;

/**
 * Iceberg's S3FileIO, with a memory for metadata that was just written or read, so that it is not read again. Set
 * {@code io-impl=io.lakefeed.sink.TableFileIO}.
 *
 * <p>At the start of a feed, Iceberg reads the table's metadata file several times; in each commit it reads the
 * metadata file and two manifest lists, which the same JVM has just written. Metadata files have a UUID in their names
 * and never change, so their contents can stay in memory. The catalog still decides which file is current: after
 * another writer's commit it names a file that is not in memory, and Iceberg reads that file.
 */
public final class TableFileIO extends S3FileIO {
    private static final long serialVersionUID = 1;
    private static final Pattern METADATA =
            Pattern.compile(".*/[^/]*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]*\\.(metadata\\.json|avro)");
    private static final int LONGEST_KEY = 1024;
    private static final String TABLE = ".metadata.json";
    /**
     * Four metadata files of each table, because only the newest is read again, or the second newest if two commits
     * race. Older files of hundreds of tables would fill the memory.
     */
    private static final RecentFiles TABLES = new RecentFiles(32 << 20, 4);

    /** A memory of its own: files in {@link #TABLES} would displace the manifests that the next commit merges. */
    private static final RecentFiles MANIFESTS = new RecentFiles(8 << 20);

    @Override
    public InputFile newInputFile(String location) {
        return METADATA.matcher(location).matches()
                ? new Remembered(super.newInputFile(location))
                : super.newInputFile(location);
    }

    @Override
    public InputFile newInputFile(String location, long length) {
        InputFile file = super.newInputFile(location, length);
        boolean isKept = METADATA.matcher(location).matches() && length <= recent(location).largest();
        return isKept ? new Remembered(file) : file;
    }

    @Override
    public OutputFile newOutputFile(String location) {
        requireKey(location);
        OutputFile file = super.newOutputFile(location);
        return METADATA.matcher(location).matches() ? new Kept(file) : file;
    }

    /** Refuses a key that is too long for S3: some stores answer with an error that Iceberg would retry. */
    private static void requireKey(String location) {
        int length = location.length() <= LONGEST_KEY ? 0 : location.getBytes(StandardCharsets.UTF_8).length;
        if (length - location.indexOf('/', location.indexOf("://") + 3) - 1 > LONGEST_KEY) {
            throw new IllegalArgumentException("lakefeed: a text is too long for a partition: the file's key in S3 has more"
                    + " than " + LONGEST_KEY + " bytes");
        }
    }

    @Override
    public void deleteFile(String location) {
        Uploads.settle(location);
        recent(location).remove(location);
        super.deleteFile(location);
    }

    @Override
    public void deleteFiles(Iterable<String> locations) {
        List<String> gone = new ArrayList<>();
        for (String location : locations) {
            Uploads.settle(location);
            recent(location).remove(location);
            gone.add(location);
        }
        super.deleteFiles(gone);
    }

    @Override
    public void deletePrefix(String prefix) {
        TABLES.removeBelow(prefix);
        MANIFESTS.removeBelow(prefix);
        super.deletePrefix(prefix);
    }

    private static RecentFiles recent(String location) {
        return location.endsWith(TABLE) ? TABLES : MANIFESTS;
    }

    /** Reads a file from memory, after at most one request for its content, and none for its length. */
    private record Remembered(InputFile file) implements InputFile {
        @Override
        public long getLength() {
            byte[] content = content();
            return content == null ? file.getLength() : content.length;
        }

        @Override
        public SeekableInputStream newStream() {
            byte[] content = content();
            return content == null ? file.newStream() : new InMemoryInputFile(location(), content).newStream();
        }

        @Override
        public String location() {
            return file.location();
        }

        @Override
        public boolean exists() {
            return recent(location()).get(location()) != null || file.exists();
        }

        /** Returns the whole file, from memory or from the store; null if it is too large to store in memory. */
        private byte[] content() {
            RecentFiles recent = recent(location());
            byte[] content = recent.get(location());
            if (content != null || recent.isLarge(location())) {
                return content;
            }
            int most = (int) recent.largest();
            try (SeekableInputStream stream = file.newStream()) {
                content = stream.readNBytes(most + 1);
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
            if (content.length > most) {
                recent.setLarge(location());
                return null;
            }
            recent.put(location(), content);
            return content;
        }
    }

    private final class Kept implements OutputFile {
        private final OutputFile file;

        Kept(OutputFile file) {
            this.file = file;
        }

        @Override
        public PositionOutputStream create() {
            return new Copying(file.create(), location());
        }

        @Override
        public PositionOutputStream createOrOverwrite() {
            return new Copying(file.createOrOverwrite(), location());
        }

        @Override
        public String location() {
            return file.location();
        }

        @Override
        public InputFile toInputFile() {
            return newInputFile(location());
        }
    }

    private static final class Copying extends PositionOutputStream {
        private final PositionOutputStream file;
        private final String location;
        private ByteArrayOutputStream copy = new ByteArrayOutputStream();
        private boolean closed;

        Copying(PositionOutputStream file, String location) {
            this.file = file;
            this.location = location;
            recent(location).remove(location);
        }

        @Override
        public void write(int each) throws IOException {
            file.write(each);
            if (fits(1)) {
                copy.write(each);
            }
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            file.write(bytes, from, length);
            if (fits(length)) {
                copy.write(bytes, from, length);
            }
        }

        @Override
        public void flush() throws IOException {
            file.flush();
        }

        @Override
        public long getPos() throws IOException {
            return file.getPos();
        }

        @Override
        public long storedLength() throws IOException {
            return file.storedLength();
        }

        @Override
        public void close() throws IOException {
            if (closed) {
                return;
            }
            closed = true;
            ByteArrayOutputStream whole = copy;
            copy = null;
            boolean isTable = location.endsWith(TABLE);
            // An upload may outlast this call only if readers find the file in memory until it ends.
            if (isTable || whole == null || !Uploads.start(location, file::close)) {
                file.close();
            }
            if (isTable) {
                // The commit's next step makes the catalog refer to this file, and thereby to all files that it names.
                Uploads.await(location);
            }
            if (whole != null) {
                recent(location).put(location, whole.toByteArray());
            } else {
                recent(location).setLarge(location);
            }
        }

        private boolean fits(int more) {
            if (copy != null && copy.size() + (long) more > recent(location).largest()) {
                copy = null;
            }
            return copy != null;
        }
    }
}
