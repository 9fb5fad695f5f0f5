package io.lakefeed.protobuf;

import java.util.Arrays;

/** Protobuf's wire format into a byte array that grows; the mirror of {@link WireInput}. */
public final class WireOutput {
    private static final int FIRST_SIZE = 64;

    private byte[] bytes = new byte[FIRST_SIZE];
    private int size;

    /** Begins again with nothing. */
    public WireOutput reset() {
        size = 0;
        return this;
    }

    /** What has been written. */
    public byte[] toBytes() {
        return Arrays.copyOf(bytes, size);
    }

    /** A field's number and wire type. */
    public void tag(int number, int wireType) {
        varint((long) number << 3 | wireType);
    }

    /** A variable-length integer; negative ones take 10 bytes. */
    public void varint(long value) {
        room(10);
        long rest = value;
        while ((rest & ~0x7FL) != 0) {
            bytes[size++] = (byte) (rest & 0x7F | 0x80);
            rest >>>= 7;
        }
        bytes[size++] = (byte) rest;
    }

    /** A variable-length integer with the sign in its lowest bit. */
    public void zigzag(long value) {
        varint(value << 1 ^ value >> 63);
    }

    /** 4 bytes, little end first. */
    public void fixed32(int value) {
        fixed(value, 4);
    }

    /** 8 bytes, little end first. */
    public void fixed64(long value) {
        fixed(value, 8);
    }

    private void fixed(long value, int count) {
        room(count);
        for (int at = 0; at < count; at++) {
            bytes[size++] = (byte) (value >>> 8 * at);
        }
    }

    /** A length and so many bytes. */
    public void lengthAnd(byte[] content) {
        varint(content.length);
        raw(content, content.length);
    }

    /** A length and what another output holds. */
    public void lengthAnd(WireOutput content) {
        varint(content.size);
        raw(content.bytes, content.size);
    }

    /** Bytes as they are. */
    public void raw(byte[] content) {
        raw(content, content.length);
    }

    private void raw(byte[] content, int length) {
        room(length);
        System.arraycopy(content, 0, bytes, size, length);
        size += length;
    }

    private void room(int count) {
        if (bytes.length - size < count) {
            bytes = Arrays.copyOf(bytes, Math.max(Math.addExact(size, count), 2 * bytes.length));
        }
    }
}
