package io.lakefeed.decode;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.avro.io.Decoder;
import org.apache.avro.util.Utf8;

/**
 * Avro's binary encoding out of a byte array, believing no length that the bytes claim.
 *
 * <p>Avro's own {@code BinaryDecoder} allocates what a length asks for before it looks whether the bytes are
 * there; a record of ten bytes can so ask for an array of 2^31 items and end the JVM. Here every length is held
 * against the bytes that are left, and all items of all arrays and maps of one record together against its
 * length (each takes a byte or more) plus {@value #FREE_ITEMS} (for items of types that take none, as null
 * does). So memory is bounded by a multiple of the record's length.
 *
 * <p>Encoding: Avro specification 1.12, "Binary Encoding". Not thread safe; {@link #over} starts a new record.
 */
final class BoundedDecoder extends Decoder {
    private static final int FREE_ITEMS = 65_536;
    private static final int LARGE = 1 << 20;
    private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, LITTLE_ENDIAN);
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, LITTLE_ENDIAN);

    private byte[] bytes;
    private int at;
    private int end;
    private long itemsLeft;

    /** Starts at {@code from} of {@code record}, to its end. */
    BoundedDecoder over(byte[] record, int from) {
        bytes = record;
        at = from;
        end = record.length;
        itemsLeft = (long) end - from + FREE_ITEMS;
        return this;
    }

    /** The position of the next byte. */
    int position() {
        return at;
    }

    /** How many bytes have not been read. */
    int remaining() {
        return end - at;
    }

    private BadRecord truncated(long wanted) {
        return new BadRecord("truncated: " + wanted + " more byte(s) wanted at byte " + at + " of " + end);
    }

    /** Checks that {@code length} bytes are there and returns it as an int. */
    private int available(long length, String of) {
        if (length < 0) {
            throw new BadRecord("negative length " + length + " of " + of + " at byte " + at);
        }
        if (length > end - at) {
            throw new BadRecord("truncated: " + of + " of " + length + " bytes wanted at byte " + at + " of " + end);
        }
        return (int) length;
    }

    @Override
    public void readNull() {}

    @Override
    public boolean readBoolean() {
        if (at >= end) {
            throw truncated(1);
        }
        return bytes[at++] == 1;
    }

    @Override
    public int readInt() {
        long value = readLong();
        int narrow = (int) value;
        if (narrow != value) {
            throw new BadRecord("an int is out of range: " + value + " before byte " + at);
        }
        return narrow;
    }

    @Override
    public long readLong() {
        final byte[] source = bytes;
        final int limit = end;
        int position = at;
        long value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            if (position >= limit) {
                throw truncated(position - at + 1L);
            }
            byte next = source[position++];
            value |= (next & 0x7FL) << shift;
            if (next >= 0) {
                at = position;
                return (value >>> 1) ^ -(value & 1);
            }
        }
        throw new BadRecord("an int or long of more than 10 bytes at byte " + at);
    }

    @Override
    public float readFloat() {
        if (end - at < 4) {
            throw truncated(4);
        }
        int bits = (int) INTS.get(bytes, at);
        at += 4;
        return Float.intBitsToFloat(bits);
    }

    @Override
    public double readDouble() {
        if (end - at < 8) {
            throw truncated(8);
        }
        long bits = (long) LONGS.get(bytes, at);
        at += 8;
        return Double.longBitsToDouble(bits);
    }

    @Override
    public Utf8 readString(Utf8 old) {
        int length = available(readLong(), "a string");
        // A fresh one for a long string: Utf8 keeps its largest buffer for ever.
        Utf8 result = old == null || length > LARGE ? new Utf8() : old;
        result.setByteLength(length);
        System.arraycopy(bytes, at, result.getBytes(), 0, length);
        at += length;
        return result;
    }

    @Override
    public String readString() {
        int length = available(readLong(), "a string");
        String result = new String(bytes, at, length, StandardCharsets.UTF_8);
        at += length;
        return result;
    }

    @Override
    public void skipString() {
        at += available(readLong(), "a string");
    }

    @Override
    public ByteBuffer readBytes(ByteBuffer old) {
        int length = available(readLong(), "bytes");
        ByteBuffer result;
        if (old != null && length <= old.capacity() && old.capacity() <= LARGE) {
            result = old;
            result.clear();
        } else {
            result = ByteBuffer.allocate(length);
        }
        result.put(bytes, at, length);
        result.flip();
        at += length;
        return result;
    }

    @Override
    public void skipBytes() {
        at += available(readLong(), "bytes");
    }

    @Override
    public void readFixed(byte[] target, int start, int length) {
        available(length, "a fixed");
        System.arraycopy(bytes, at, target, start, length);
        at += length;
    }

    @Override
    public void skipFixed(int length) {
        at += available(length, "a fixed");
    }

    @Override
    public int readEnum() {
        return readInt();
    }

    @Override
    public int readIndex() {
        return readInt();
    }

    /** The number of items in the next block; a negative one is followed by the block's size in bytes. */
    private long readItemCount() {
        long count = readLong();
        if (count < 0) {
            available(readLong(), "a block of items");
            count = -count;
        }
        if (count < 0 || count > itemsLeft) {
            throw new BadRecord("an array or map claims " + count + " items before byte " + at + " of " + end);
        }
        itemsLeft -= count;
        return count;
    }

    /** Skips blocks that tell their size; the number of items to skip one by one of the first that does not. */
    private long skipItems() {
        long count = readLong();
        while (count < 0) {
            at += available(readLong(), "a block of items");
            count = readLong();
        }
        if (count > itemsLeft) {
            throw new BadRecord("an array or map claims " + count + " items before byte " + at + " of " + end);
        }
        itemsLeft -= count;
        return count;
    }

    @Override
    public long readArrayStart() {
        return readItemCount();
    }

    @Override
    public long arrayNext() {
        return readItemCount();
    }

    @Override
    public long skipArray() {
        return skipItems();
    }

    @Override
    public long readMapStart() {
        return readItemCount();
    }

    @Override
    public long mapNext() {
        return readItemCount();
    }

    @Override
    public long skipMap() {
        return skipItems();
    }
}
