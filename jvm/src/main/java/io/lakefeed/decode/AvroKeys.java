package io.lakefeed.decode;

import java.security.SecureRandom;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The distinct keys of one map, in their order of appearance.
 *
 * <p>This is no {@code HashMap}: a producer that knows the hash of Spark's text can write a map whose keys all have the
 * same hash, which takes much memory there. Here the hash depends on secret numbers, and a key takes only a few bytes
 * more than its text.
 */
final class AvroKeys {
    /** Up to this number, comparing a key with all others is faster than hashing. */
    private static final int FEW = 8;

    private static final Object[] NONE = {};
    private static final long SECRET = new SecureRandom().nextLong();
    private static final long FACTOR = new SecureRandom().nextLong() | 1;

    private Object[] keys = NONE;
    private int size;
    /** Positions of keys by their hash, counted from 1; 0 where there is none. Null for few keys. */
    private int[] table;

    int size() {
        return size;
    }

    /** Makes room for so many more keys. */
    void expect(int more) {
        keys = AvroStep.roomFor(size + more, keys);
    }

    /** Returns the position of a key, which is {@link #size} before this call if it is new. */
    int place(UTF8String key) {
        if (size < FEW) {
            for (int at = 0; at < size; at++) {
                if (key.equals(keys[at])) {
                    return at;
                }
            }
        } else {
            if (table == null || 2 * (size + 1) > table.length) {
                rebuild();
            }
            int slot = slot(key);
            if (table[slot] != 0) {
                return table[slot] - 1;
            }
            table[slot] = size + 1;
        }
        keys[size] = key;
        return size++;
    }

    /** Returns the slot of a key in the table, or the free slot where it belongs. */
    private int slot(UTF8String key) {
        int mask = table.length - 1;
        int slot = hash(key) & mask;
        while (table[slot] != 0 && !key.equals(keys[table[slot] - 1])) {
            slot = slot + 1 & mask;
        }
        return slot;
    }

    private void rebuild() {
        table = new int[Integer.highestOneBit(size) * 8];
        for (int at = 0; at < size; at++) {
            table[slot((UTF8String) keys[at])] = at + 1;
        }
    }

    private static int hash(UTF8String key) {
        Object base = key.getBaseObject();
        long at = key.getBaseOffset();
        long end = at + key.numBytes();
        long hash = mixed(key.numBytes());
        for (; at + Long.BYTES <= end; at += Long.BYTES) {
            hash = mixed(hash ^ Platform.getLong(base, at));
        }
        long rest = 0;
        for (; at < end; at++) {
            rest = rest << 8 | Platform.getByte(base, at) & 0xFF;
        }
        hash = mixed(hash ^ rest);
        return (int) (hash ^ hash >>> 32);
    }

    private static long mixed(long value) {
        long hidden = value ^ SECRET;
        return Math.multiplyHigh(hidden, FACTOR) ^ hidden * FACTOR;
    }

    /** Returns the keys as Spark's array. */
    GenericArrayData array() {
        return new GenericArrayData(size == keys.length ? keys : Arrays.copyOf(keys, size));
    }
}
