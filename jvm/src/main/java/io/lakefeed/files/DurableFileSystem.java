package io.lakefeed.files;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.StandardOpenOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Writes local files so that a closed file survives a loss of power. Set it as {@code fs.file.impl}.
 *
 * <p>When a commit in the catalog's database returns, the commit is on the disk, so its files must be on the disk, too.
 * Hadoop's own file system leaves this to the operating system. It also writes a checksum file {@code .name.crc} beside
 * each file. Other readers of a table do not know such files, and Parquet and Avro do not need them.
 */
public final class DurableFileSystem extends LocalFileSystem {
    private static final int LONGEST_NAME = 255;

    public DurableFileSystem() {
        super(new Files());
    }

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
        setWriteChecksum(false);
    }

    private static final class Files extends RawLocalFileSystem {
        @Override
        public boolean mkdirs(Path folder) throws IOException {
            // Without this check, Hadoop would report a missing permission instead.
            if (folder.getName().getBytes(StandardCharsets.UTF_8).length > LONGEST_NAME) {
                throw new IllegalArgumentException("lakefeed: a text is too long for a partition: its folder's name has more"
                        + " than " + LONGEST_NAME + " bytes");
            }
            return super.mkdirs(folder);
        }

        @Override
        protected OutputStream createOutputStream(Path path, boolean append) throws IOException {
            return new Synced(super.createOutputStream(path, append), pathToFile(path).toPath());
        }

        @Override
        protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission permission)
                throws IOException {
            OutputStream file = super.createOutputStreamWithMode(path, append, permission);
            return file instanceof Synced ? file : new Synced(file, pathToFile(path).toPath());
        }
    }

    /** A stream whose {@code close} returns when the file and its directory entry are on the disk. */
    private static final class Synced extends FilterOutputStream implements Syncable, StreamCapabilities {
        private final java.nio.file.Path path;
        private boolean closed;

        Synced(OutputStream file, java.nio.file.Path path) {
            super(file);
            this.path = path;
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            out.write(bytes, from, length);
        }

        @Override
        public void hflush() throws IOException {
            ((Syncable) out).hflush();
        }

        @Override
        public void hsync() throws IOException {
            ((Syncable) out).hsync();
        }

        @Override
        public boolean hasCapability(String capability) {
            return out instanceof StreamCapabilities file && file.hasCapability(capability);
        }

        @Override
        public void close() throws IOException {
            if (closed) {
                return;
            }
            closed = true;
            try {
                hsync();
            } finally {
                out.close();
            }
            try (FileChannel folder = FileChannel.open(path.getParent(), StandardOpenOption.READ)) {
                folder.force(true);
            }
        }
    }
}
