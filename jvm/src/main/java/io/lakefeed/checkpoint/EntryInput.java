package io.lakefeed.checkpoint;

import java.io.ByteArrayInputStream;
import java.io.EOFException;
import org.apache.hadoop.fs.PositionedReadable;
import org.apache.hadoop.fs.Seekable;

/** A small file in memory, with the interfaces that Hadoop requires. */
final class EntryInput extends ByteArrayInputStream implements Seekable, PositionedReadable {
    EntryInput(byte[] content) {
        super(content);
    }

    @Override
    public synchronized void seek(long position) throws EOFException {
        if (position < 0 || position > count) {
            throw new EOFException("no position " + position + " in " + count + " bytes");
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
            throw new EOFException("no " + length + " bytes at " + position + " of " + count);
        }
    }

    @Override
    public void readFully(long position, byte[] buffer) throws EOFException {
        readFully(position, buffer, 0, buffer.length);
    }
}
