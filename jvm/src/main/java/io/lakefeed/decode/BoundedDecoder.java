package io.lakefeed.decode;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads Avro's binary encoding from a byte array, and trusts none of the lengths in it.
 *
 * <p>Avro's {@code BinaryDecoder} allocates memory for a length before it checks that the bytes exist: ten bytes can
 * claim an array of 2^31 items and end the JVM. Here each length is compared with the number of remaining bytes, and so
 * is each number of items, because an item takes a byte or more. Items without bytes, such as null, are charged to the
 * record's {@link MemoryBudget}. Recursive records can have {@value #DEEPEST} levels.
 *
 * <p>Encoding: Avro specification 1.12, "Binary Encoding". Not thread safe; {@link #over} starts a new record.
 */
final class BoundedDecoder {
    private static final int DEEPEST = 1_000;
    private static final long HIGHEST_BITS = 0x8080808080808080L;
    private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, LITTLE_ENDIAN);
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, LITTLE_ENDIAN);
    /** Texts of one ASCII character, such as flags: they are shared, so that no new objects are created. */
    private static final UTF8String[] CHARACTERS = characters();

    private final MemoryBudget budget;
    /** The buffer for values as JSON, which all records share; null until it is needed. */
    private JsonText json;

    private byte[] bytes;
    private int at;
    private int end;
    private int depth;

    /** Creates a decoder; the caller starts {@code budget} for each record. */
    BoundedDecoder(MemoryBudget budget) {
        this.budget = budget;
    }

    private static UTF8String[] characters() {
        UTF8String[] all = new UTF8String[128];
        for (int code = 0; code < all.length; code++) {
            all[code] = UTF8String.fromBytes(new byte[] {(byte) code});
        }
        return all;
    }

    /** Returns a decoder of bytes that come from the user's schema, without a limit for memory. */
    static BoundedDecoder ofTrusted(byte[] bytes) {
        MemoryBudget budget = new MemoryBudget();
        budget.start(Integer.MAX_VALUE);
        return new BoundedDecoder(budget).over(bytes, 0);
    }

    /** Starts a record at its byte {@code from}. */
    BoundedDecoder over(byte[] record, int from) {
        bytes = record;
        at = from;
        end = record.length;
        depth = 0;
        return this;
    }

    int position() {
        return at;
    }

    int remaining() {
        return end - at;
    }

    void charge(long size) {
        budget.charge(size);
    }

    void enter() {
        if (++depth > DEEPEST) {
            throw new BadRecord("nested too deeply");
        }
    }

    void leave() {
        depth--;
    }

    /** Reads the next value with {@code step} and returns it as JSON. */
    UTF8String json(AvroStep step) {
        charge(2L * MemoryBudget.OBJECT);
        json = json == null ? new JsonText(budget) : json;
        json.begin();
        step.write(this, json);
        return json.taken();
    }

    private BadRecord truncated(long required) {
        return new BadRecord("truncated: " + required + " more byte(s) expected at byte " + at + " of " + end);
    }

    /** Returns {@code length} as an int; throws an error if fewer bytes remain. */
    private int available(long length, String of) {
        if (length < 0) {
            throw new BadRecord("negative length " + length + " of " + of + " at byte " + at);
        }
        if (length > end - at) {
            throw new BadRecord("truncated: " + of + " of " + length + " bytes expected at byte " + at + " of " + end);
        }
        return (int) length;
    }

    boolean readBoolean() {
        if (at >= end) {
            throw truncated(1);
        }
        byte value = bytes[at];
        if ((value & ~1) != 0) {
            throw new BadRecord("a boolean is neither 0 nor 1 at byte " + at);
        }
        at++;
        return value != 0;
    }

    int readInt() {
        long value = readLong();
        int narrow = (int) value;
        if (narrow != value) {
            throw new BadRecord("an int is out of range before byte " + at);
        }
        return narrow;
    }

    long readLong() {
        final byte[] source = bytes;
        final int position = at;
        final int left = end - position;
        if (left > 0 && source[position] >= 0) {
            at = position + 1;
            return signed(source[position]);
        }
        if (left >= Long.BYTES) {
            long word = (long) LONGS.get(source, position);
            long last = ~word & HIGHEST_BITS; // Only the last byte of a number has a highest bit of 0.
            if (last != 0) {
                at = position + 1 + (Long.numberOfTrailingZeros(last) >>> 3);
                return signed(sevenBits(word & (last ^ last - 1)));
            }
        }
        return readLongByBytes();
    }

    /** Reads one byte at a time: for a long of nine or ten bytes, and at the end of the record. */
    private long readLongByBytes() {
        int position = at;
        long value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            if (position >= end) {
                throw truncated(position - at + 1L);
            }
            byte next = bytes[position++];
            value |= (next & 0x7FL) << shift;
            if (next >= 0) {
                at = position;
                return signed(value);
            }
        }
        throw new BadRecord("an int or long of more than 10 bytes at byte " + at);
    }

    /** Joins the lower seven bits of eight bytes: of pairs, then of fours, then of all eight. */
    private static long sevenBits(long word) {
        long pairs = word & 0x007F007F007F007FL | (word & 0x7F007F007F007F00L) >>> 1;
        long fours = pairs & 0x00003FFF00003FFFL | (pairs & 0x3FFF00003FFF0000L) >>> 2;
        return fours & 0x000000000FFFFFFFL | (fours & 0x0FFFFFFF00000000L) >>> 4;
    }

    /** Returns the number of a zigzag code; the codes 0, 1, 2, 3 are the numbers 0, -1, 1, -2. */
    private static long signed(long code) {
        return (code >>> 1) ^ -(code & 1);
    }

    float readFloat() {
        if (end - at < 4) {
            throw truncated(4);
        }
        int bits = (int) INTS.get(bytes, at);
        at += 4;
        return Float.intBitsToFloat(bits);
    }

    double readDouble() {
        if (end - at < 8) {
            throw truncated(8);
        }
        long bits = (long) LONGS.get(bytes, at);
        at += 8;
        return Double.longBitsToDouble(bits);
    }

    /** Reads text and checks that it is valid UTF-8. The text uses the record's bytes without a copy. */
    UTF8String readString() {
        int length = available(readLong(), "a string");
        int from = at;
        if (length == 1 && bytes[from] >= 0) {
            at = from + 1;
            return CHARACTERS[bytes[from]];
        }
        UTF8String text = UTF8String.fromBytes(bytes, from, length);
        if (!ascii(from, length) && !SparkApi.isUtf8(text)) {
            throw new BadRecord("a string is not UTF-8: " + length + " byte(s) at byte " + from);
        }
        at = from + length;
        return text;
    }

    private boolean ascii(int from, int length) {
        final byte[] source = bytes;
        final int until = from + length;
        int position = from;
        for (; position <= until - 8; position += 8) {
            if (((long) LONGS.get(source, position) & HIGHEST_BITS) != 0) {
                return false;
            }
        }
        for (; position < until; position++) {
            if (source[position] < 0) {
                return false;
            }
        }
        return true;
    }

    byte[] readBytes() {
        return copied(available(readLong(), "bytes"));
    }

    byte[] readFixed(int length) {
        return copied(available(length, "a fixed"));
    }

    private byte[] copied(int length) {
        byte[] result = Arrays.copyOfRange(bytes, at, at + length);
        at += length;
        return result;
    }

    /** Reads the index of an enum's symbol or of a union's branch, below {@code count}. */
    int readIndex(int count, String of) {
        long index = readLong();
        if (index < 0 || index >= count) {
            throw new BadRecord(of + " has index " + index + " of " + count + " before byte " + at);
        }
        return (int) index;
    }

    /**
     * Reads the number of items in the next block; 0 after the last block. After a negative number, the block's size in
     * bytes follows.
     *
     * @param free whether the items take no bytes; if so, the caller must charge their memory
     */
    int readItemCount(boolean free) {
        long count = readLong();
        if (count < 0) {
            available(readLong(), "a block of items");
            count = -count;
        }
        return counted(count, free);
    }

    /** Skips blocks that give their size in bytes; returns the number of items in the next block that does not. */
    int skipItems(boolean free) {
        long count = readLong();
        while (count < 0) {
            skip(readLong(), "a block of items");
            count = readLong();
        }
        return counted(count, free);
    }

    private int counted(long count, boolean free) {
        if (count < 0 || count > (free ? Integer.MAX_VALUE : end - at)) {
            throw new BadRecord("an array or map claims " + count + " items before byte " + at + " of " + end);
        }
        return (int) count;
    }

    void skipBytes() {
        skip(readLong(), "a string or bytes");
    }

    void skip(int length) {
        skip(length, "a fixed");
    }

    /** Skips bytes. {@code at += readLong()} would be wrong: Java reads {@code at} before it makes the call. */
    private void skip(long length, String of) {
        at += available(length, of);
    }
}
