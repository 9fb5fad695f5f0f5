package io.lakefeed.upsert;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.apache.iceberg.relocated.com.google.common.hash.HashFunction;
import org.apache.iceberg.relocated.com.google.common.hash.Hashing;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * Computes the 96 bits by which {@link KeyTable} identifies a key.
 *
 * <p>If the key is a single whole number, its bits are unique. For other keys they are two SipHashes with random
 * secrets: an attacker cannot construct two keys with the same bits, and the probability that two of 20 million keys
 * have the same bits is 1 : 10^14.
 */
final class KeyHash implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final Set<Class<?>> WHOLE = Set.of(
            ByteType.class,
            ShortType.class,
            IntegerType.class,
            LongType.class,
            DateType.class,
            TimestampType.class,
            TimestampNTZType.class,
            BooleanType.class);

    private final int[] columns;
    private final DataType[] types;
    private final HashFunction[] secret;
    private final boolean exact;
    private transient ByteBuffer bytes;
    private long high;
    private int low;

    private KeyHash(int[] columns, DataType[] types, HashFunction... secret) {
        this.columns = columns;
        this.types = types;
        this.secret = secret;
        exact = types.length == 1 && isWhole(types[0]);
    }

    /** Returns a hash of these columns with a new secret. */
    static KeyHash of(StructType rows, List<String> keys) {
        SecureRandom random = new SecureRandom();
        HashFunction one = Hashing.sipHash24(random.nextLong(), random.nextLong());
        return of(rows, keys, one, Hashing.sipHash24(random.nextLong(), random.nextLong()));
    }

    /** Returns the same hash, with the same secret, for rows with the key columns at other ordinals. */
    KeyHash on(StructType rows, List<String> keys) {
        return of(rows, keys, secret);
    }

    private static KeyHash of(StructType rows, List<String> keys, HashFunction... secret) {
        int[] at = keys.stream().mapToInt(rows::fieldIndex).toArray();
        DataType[] of = Arrays.stream(at).mapToObj(each -> rows.apply(each).dataType()).toArray(DataType[]::new);
        return new KeyHash(at, of, secret);
    }

    /** Returns whether both hashes have key columns of the same types: then equal keys have equal bits. */
    boolean hasTypesOf(KeyHash other) {
        return Arrays.equals(types, other.types);
    }

    static boolean isWhole(DataType type) {
        return WHOLE.stream().anyMatch(each -> each.isInstance(type));
    }

    /** Returns whether a key column can have this type. */
    static boolean takes(DataType type) {
        return isWhole(type)
                || type instanceof DecimalType
                || type instanceof BinaryType
                || type instanceof StringType text && text.supportsBinaryEquality();
    }

    /** Returns whether one of the row's key columns is null. */
    boolean lacksKey(InternalRow row) {
        for (int column : columns) {
            if (row.isNullAt(column)) {
                return true;
            }
        }
        return false;
    }

    /** Computes the hash of a row's key; {@link #high} and {@link #low} then return it. */
    void hash(InternalRow row) {
        if (exact) {
            high = mixed(whole(row, columns[0], types[0]));
            low = 0;
            return;
        }
        if (bytes == null) {
            bytes = buffer(256);
        }
        bytes.clear();
        for (int at = 0; at < columns.length; at++) {
            append(row, columns[at], types[at]);
        }
        high = secret[0].hashBytes(bytes.array(), 0, bytes.position()).asLong();
        low = secret[1].hashBytes(bytes.array(), 0, bytes.position()).asInt();
    }

    long high() {
        return high;
    }

    int low() {
        return low;
    }

    private void append(InternalRow row, int column, DataType type) {
        if (isWhole(type)) {
            room(Long.BYTES).putLong(whole(row, column, type));
            return;
        }
        byte[] value;
        if (type instanceof StringType) {
            value = row.getUTF8String(column).getBytes();
        } else if (type instanceof DecimalType decimal) {
            Decimal number = row.getDecimal(column, decimal.precision(), decimal.scale());
            value = number.toJavaBigDecimal().unscaledValue().toByteArray();
        } else {
            value = row.getBinary(column);
        }
        // Hash the length first, so that the keys ("ab", "c") and ("a", "bc") differ.
        room(Integer.BYTES + value.length).putInt(value.length).put(value);
    }

    static long whole(InternalRow row, int column, DataType type) {
        if (type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType) {
            return row.getLong(column);
        }
        if (type instanceof BooleanType) {
            return row.getBoolean(column) ? 1 : 0;
        }
        if (type instanceof ByteType) {
            return row.getByte(column);
        }
        return type instanceof ShortType ? row.getShort(column) : row.getInt(column);
    }

    private ByteBuffer room(int more) {
        if (bytes.remaining() < more) {
            ByteBuffer larger = buffer(Math.max(2 * bytes.capacity(), bytes.position() + more));
            bytes = larger.put(bytes.flip());
        }
        return bytes;
    }

    private static ByteBuffer buffer(int capacity) {
        return ByteBuffer.allocate(capacity).order(ByteOrder.LITTLE_ENDIAN);
    }

    /** Mixes the bits of a number with the finalizer of MurmurHash3; different numbers give different results. */
    private static long mixed(long number) {
        long mixed = (number ^ number >>> 33) * 0xff51afd7ed558ccdL;
        mixed = (mixed ^ mixed >>> 33) * 0xc4ceb9fe1a85ec53L;
        return mixed ^ mixed >>> 33;
    }
}
