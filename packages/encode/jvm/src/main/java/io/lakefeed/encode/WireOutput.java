package io.lakefeed.encode;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Writes Protobuf's wire format into a growing byte array. */
public final class WireOutput {
    private static final int FIRST_SIZE = 64;
    private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    private byte[] bytes = new byte[FIRST_SIZE];
    private int size;

    public WireOutput reset() {
        size = 0;
        return this;
    }

    public byte[] toBytes() {
        return Arrays.copyOf(bytes, size);
    }

    public void tag(int number, int wireType) {
        varint((long) number << 3 | wireType);
    }

    /** Writes a variable-length integer; a negative number takes 10 bytes. */
    public void varint(long value) {
        room(10);
        long rest = value;
        while ((rest & ~0x7FL) != 0) {
            bytes[size++] = (byte) (rest & 0x7F | 0x80);
            rest >>>= 7;
        }
        bytes[size++] = (byte) rest;
    }

    /** Writes a variable-length integer with the sign in its lowest bit. */
    public void zigzag(long value) {
        varint(value << 1 ^ value >> 63);
    }

    /** Writes 4 bytes, lowest byte first. */
    public void fixed32(int value) {
        room(4);
        INTS.set(bytes, size, value);
        size += 4;
    }

    /** Writes 8 bytes, lowest byte first. */
    public void fixed64(long value) {
        room(8);
        LONGS.set(bytes, size, value);
        size += 8;
    }

    public void lengthAnd(byte[] content) {
        varint(content.length);
        raw(content, content.length);
    }

    public void raw(UTF8String text) {
        int length = text.numBytes();
        room(length);
        text.writeToMemory(bytes, Platform.BYTE_ARRAY_OFFSET + size);
        size += length;
    }

    public void lengthAnd(WireOutput content) {
        varint(content.size);
        raw(content.bytes, content.size);
    }

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
