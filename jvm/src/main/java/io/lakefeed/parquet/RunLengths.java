package io.lakefeed.parquet;

/**
 * Writes ints as runs of equal values and bit-packed groups of eight: Parquet's hybrid encoding ("RLE/Bit-Packing
 * Hybrid" in its specification of encodings).
 */
final class RunLengths {
    private static final int GROUP = 8;

    private RunLengths() {}

    /** Returns the most bytes that {@code count} values of {@code width} bits can take. */
    static int mostBytes(int count, int width) {
        int groups = (count + GROUP - 1) / GROUP;
        // A run takes at most five bytes of header and four of value, and replaces a group or more.
        return groups * Math.max(width, 9) + 16;
    }

    /**
     * Writes the first {@code count} values.
     *
     * @param width the number of bits that the largest value needs
     * @return the position after the last byte
     */
    static int write(int[] values, int count, int width, byte[] into, int at) {
        int literals = 0;
        int next = 0;
        while (next < count) {
            int run = runLength(values, next, count);
            if (run >= GROUP) {
                at = literals(values, literals, next, count, width, into, at);
                at = run(run, values[next], width, into, at);
                next += run;
                literals = next;
            } else {
                next = Math.min(next + GROUP, count);
            }
        }
        return literals(values, literals, next, count, width, into, at);
    }

    private static int runLength(int[] values, int from, int count) {
        int value = values[from];
        int next = from + 1;
        while (next < count && values[next] == value) {
            next++;
        }
        return next - from;
    }

    /** Writes one value {@code length} times. */
    static int run(int length, int value, int width, byte[] into, int at) {
        at = unsigned(length << 1, into, at);
        for (int bits = 0; bits < width; bits += 8) {
            into[at++] = (byte) (value >>> bits);
        }
        return at;
    }

    private static int literals(int[] values, int from, int until, int count, int width, byte[] into, int at) {
        if (from == until) {
            return at;
        }
        int groups = (until - from + GROUP - 1) / GROUP;
        at = unsigned(groups << 1 | 1, into, at);
        int end = at + groups * width;
        long buffer = 0;
        int bits = 0;
        for (int next = from; next < until; next++) {
            buffer |= (long) values[next] << bits;
            bits += width;
            while (bits >= 8) {
                into[at++] = (byte) buffer;
                buffer >>>= 8;
                bits -= 8;
            }
        }
        // The last group is filled up with zeros.
        while (at < end) {
            into[at++] = (byte) buffer;
            buffer >>>= 8;
        }
        return at;
    }

    private static int unsigned(int value, byte[] into, int at) {
        while ((value & ~0x7F) != 0) {
            into[at++] = (byte) (value | 0x80);
            value >>>= 7;
        }
        into[at++] = (byte) value;
        return at;
    }
}
