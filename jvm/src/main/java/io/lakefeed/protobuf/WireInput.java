package io.lakefeed.protobuf;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * Reads Protobuf's wire format from a byte array, and trusts none of the lengths in it.
 *
 * <p>Each length is compared with the number of remaining bytes before memory is allocated for it. Not thread safe;
 * {@link #over} starts a new record.
 *
 * @see <a href="https://protobuf.dev/programming-guides/encoding/">Protobuf's encoding</a>
 */
public final class WireInput {
    // The wire types.
    public static final int VARINT = 0;
    public static final int FIXED64 = 1;
    public static final int LENGTH = 2;
    public static final int START_GROUP = 3;
    public static final int END_GROUP = 4;
    public static final int FIXED32 = 5;

    /** The deepest nesting of messages: the limit of Protobuf's own libraries. */
    public static final int DEEPEST = 100;

    private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, LITTLE_ENDIAN);
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, LITTLE_ENDIAN);

    private byte[] bytes;
    private int at;
    private int end;

    /** Starts a record at its byte {@code from}. */
    public WireInput over(byte[] record, int from) {
        bytes = record;
        at = from;
        end = record.length;
        return this;
    }

    /** Returns whether the input was read to its end: that of the record, or that set by {@link #limit}. */
    public boolean atEnd() {
        return at >= end;
    }

    public int position() {
        return at;
    }

    public byte[] bytes() {
        return bytes;
    }

    /** Reads a length, and limits the input to that many bytes; returns the old end for {@link #unlimit}. */
    public int limit() {
        int length = length();
        int before = end;
        end = at + length;
        return before;
    }

    /** Restores the end that {@link #limit} returned. */
    public void unlimit(int before) {
        end = before;
    }

    /** Reads a length, and checks that the record has this many more bytes. */
    public int length() {
        long length = varint();
        if (length < 0 || length > end - at) {
            throw new Malformed("truncated: a length of " + Long.toUnsignedString(length) + " bytes before byte " + at + " of " + end);
        }
        return (int) length;
    }

    /** Skips {@code length} bytes, which {@link #length} has returned; returns the index of the first skipped byte. */
    public int take(int length) {
        int from = at;
        at += length;
        return from;
    }

    /** Reads a field's number and wire type: {@code number << 3 | type}. */
    public int tag() {
        int from = at;
        long tag = varint();
        if (tag < 0 || tag > 0xFFFFFFFFL || tag >>> 3 == 0) {
            throw new Malformed("no field at byte " + from + ": tag " + Long.toUnsignedString(tag));
        }
        return (int) tag;
    }

    public long varint() {
        final byte[] source = bytes;
        final int limit = end;
        int position = at;
        long value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            if (position >= limit) {
                throw new Malformed("truncated: " + (position - at + 1) + " more byte(s) expected at byte " + at + " of " + end);
            }
            byte next = source[position++];
            value |= (next & 0x7FL) << shift;
            if (next >= 0) {
                at = position;
                return value;
            }
        }
        throw new Malformed("a number of more than 10 bytes at byte " + at);
    }

    public long zigzag() {
        long value = varint();
        return (value >>> 1) ^ -(value & 1);
    }

    public int fixed32() {
        require(4);
        int value = (int) INTS.get(bytes, at);
        at += 4;
        return value;
    }

    public long fixed64() {
        require(8);
        long value = (long) LONGS.get(bytes, at);
        at += 8;
        return value;
    }

    private void require(int count) {
        if (end - at < count) {
            throw new Malformed("truncated: " + count + " more byte(s) expected at byte " + at + " of " + end);
        }
    }

    public void skip(int tag, int depth) {
        switch (tag & 7) {
            case VARINT -> varint();
            case FIXED64 -> {
                require(8);
                at += 8;
            }
            case LENGTH -> take(length());
            case START_GROUP -> skipGroup(tag >>> 3, depth + 1);
            case FIXED32 -> {
                require(4);
                at += 4;
            }
            default -> throw new Malformed("field " + (tag >>> 3) + " has the wire type " + (tag & 7) + " before byte " + at);
        }
    }

    private void skipGroup(int number, int depth) {
        requireDepth(depth);
        while (true) {
            int tag = tag();
            if ((tag & 7) == END_GROUP) {
                requireEndOf(number, tag);
                return;
            }
            skip(tag, depth);
        }
    }

    /** Checks that the tag at the end of a group has the group's number. */
    public void requireEndOf(int number, int tag) {
        if (tag >>> 3 != number) {
            throw new Malformed("group " + number + " ends as group " + (tag >>> 3) + " before byte " + at);
        }
    }

    /** Checks that messages are not nested deeper than {@value #DEEPEST}. */
    public static void requireDepth(int depth) {
        if (depth > DEEPEST) {
            throw new Malformed("nested too deeply: more than " + DEEPEST + " messages in each other");
        }
    }
}
