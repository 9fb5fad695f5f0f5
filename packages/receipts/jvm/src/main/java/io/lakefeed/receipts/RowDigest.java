package io.lakefeed.receipts;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.iceberg.Schema;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Hashes each value of a row together with the row's position and the column's id, and adds the hashes up by column.
 *
 * <p>A sum of hashes does not depend on the order of rows, and rows can be added and removed: the multiset hash of
 * Clarke et al., "Incremental Multiset Hash Functions and Their Application to Memory Integrity Checking" (Asiacrypt
 * 2003), after Bellare and Micciancio's AdHash (Eurocrypt 1997). A hash is a product of two keyed 64-bit words, as in
 * wyhash, kept as two 64-bit sums. A change that was made without regard to the key escapes with a probability of
 * about 2<sup>-58</sup>. This is no cryptographic hash: against someone who knows the key, a sum of 128 bits has no
 * strength at all (Wagner, "A Generalized Birthday Problem", Crypto 2002).
 *
 * <p>A null adds nothing, so a column that does not exist yet is equal to a column of nulls. A value's form is the same
 * before and after Iceberg's widening of types. Not thread safe.
 */
final class RowDigest {
    /** The id of the digest of positions, which is no column's id. */
    static final int POSITIONS = 0;

    private static final long ODD = 0x9E3779B97F4A7C15L;

    private final Type[] types;
    private final int[] ids;
    private final long[] keys;
    private final long[] seed;
    /** Two words and the number of values for the positions, and then for each column. */
    private final long[] sums;

    private final Map<String, long[]> partitions = new TreeMap<>();
    private final Map<String, Long> since;
    private final int topicAt;
    private final int partitionAt;
    private final int offsetAt;

    private UTF8String topic;
    private int partition;
    private long from;
    private long[] ofPartition;
    private long left;
    private long right;

    /** Creates a digest; {@code since} has the first offset to add, by {@code topic/partition}, if not all are added. */
    RowDigest(Schema schema, byte[] key, Map<String, Long> since) {
        this.since = since;
        List<Types.NestedField> fields = schema.columns();
        types = fields.stream().map(Types.NestedField::type).toArray(Type[]::new);
        ids = fields.stream().mapToInt(Types.NestedField::fieldId).toArray();
        seed = words(key, -1);
        keys = new long[2 * ids.length + 2];
        sums = new long[3 * ids.length + 3];
        for (int at = 0; at <= ids.length; at++) {
            System.arraycopy(words(key, at == 0 ? POSITIONS : ids[at - 1]), 0, keys, 2 * at, 2);
        }
        List<String> names = fields.stream().map(Types.NestedField::name).toList();
        topicAt = names.indexOf("kafka_topic");
        partitionAt = names.indexOf("kafka_partition");
        offsetAt = names.indexOf("kafka_offset");
    }

    private static long[] words(byte[] key, int purpose) {
        long[] words = new long[4];
        ByteBuffer.wrap(Receipts.hmac(key, "column " + purpose)).asLongBuffer().get(words);
        return words;
    }

    // A row without a position has an empty topic, partition -1 and offset -1.
    UTF8String topic(InternalRow row) {
        return topicAt < 0 || row.isNullAt(topicAt) ? UTF8String.EMPTY_UTF8 : row.getUTF8String(topicAt);
    }

    int partition(InternalRow row) {
        return topicAt < 0 || partitionAt < 0 || row.isNullAt(partitionAt) ? -1 : row.getInt(partitionAt);
    }

    long offset(InternalRow row) {
        return offsetAt < 0 || row.isNullAt(offsetAt) ? -1 : row.getLong(offsetAt);
    }

    void add(InternalRow row, UTF8String ofRow, int number, long offset) {
        if (ofPartition == null || number != partition || !ofRow.equals(topic)) {
            topic = ofRow.clone();
            partition = number;
            ofPartition = partitions.computeIfAbsent(topic + "/" + number, any -> new long[] {0, 0, 0, Long.MAX_VALUE, 0});
            from = since.getOrDefault(topic + "/" + number, Long.MIN_VALUE);
            left = fold(bytes(topic.getBytes()) ^ seed[0], number ^ seed[1]);
            right = fold(left ^ seed[2], ODD ^ seed[3]);
        }
        if (offset < from) {
            return;
        }
        long mixed = fold(offset ^ left, right ^ seed[2]);
        long one = fold(mixed ^ seed[0], offset ^ right ^ seed[3]);
        long two = fold(mixed ^ seed[1], one ^ ODD);
        for (int at = 0; at <= types.length; at++) {
            if (at > 0 && row.isNullAt(at - 1)) {
                continue;
            }
            long value = at == 0 ? ODD : word(types[at - 1], row, at - 1);
            long first = one ^ value ^ keys[2 * at];
            long second = two ^ Long.rotateLeft(value, 32) ^ keys[2 * at + 1];
            long low = first * second;
            long high = upper(first, second);
            sums[3 * at] += low;
            sums[3 * at + 1] += high;
            sums[3 * at + 2]++;
            ofPartition[0] += low;
            ofPartition[1] += high;
        }
        ofPartition[2]++;
        ofPartition[3] = Math.min(ofPartition[3], offset);
        ofPartition[4] = Math.max(ofPartition[4], offset);
    }

    /** Returns the sums of the rows so far: {@code id} for a column, {@code topic/partition} for a partition. */
    Map<String, long[]> sums() {
        Map<String, long[]> all = new TreeMap<>(partitions);
        all.values().removeIf(sum -> sum[2] == 0);
        for (int at = 0; at <= ids.length; at++) {
            if (sums[3 * at + 2] > 0) {
                all.put(String.valueOf(at == 0 ? POSITIONS : ids[at - 1]), Arrays.copyOfRange(sums, 3 * at, 3 * at + 3));
            }
        }
        return all;
    }

    /** Returns a value as 64 bits that are the same for a value of a wider type; longer values are hashed. */
    private long word(Type type, SpecializedGetters from, int at) {
        switch (type.typeId()) {
            case BOOLEAN:
                return from.getBoolean(at) ? 1 : 2;
            case INTEGER, DATE:
                return from.getInt(at);
            case LONG, TIME, TIMESTAMP, TIMESTAMP_NANO:
                return from.getLong(at);
            case FLOAT:
                return Double.doubleToLongBits(from.getFloat(at));
            case DOUBLE:
                return Double.doubleToLongBits(from.getDouble(at));
            case DECIMAL:
                Types.DecimalType exact = (Types.DecimalType) type;
                Decimal decimal = from.getDecimal(at, exact.precision(), exact.scale());
                if (exact.precision() <= Decimal.MAX_LONG_DIGITS()) {
                    return decimal.toUnscaledLong();
                }
                BigInteger unscaled = decimal.toJavaBigDecimal().unscaledValue();
                return unscaled.bitLength() < Long.SIZE ? unscaled.longValue() : bytes(unscaled.toByteArray());
            case STRING:
                UTF8String text = from.getUTF8String(at);
                return bytes(text.getBaseObject(), text.getBaseOffset(), text.numBytes());
            case UUID:
                return bytes(from.getUTF8String(at).toLowerCase().getBytes());
            case BINARY, FIXED:
                return bytes(from.getBinary(at));
            case STRUCT:
                return struct(type.asStructType().fields(), from.getStruct(at, type.asStructType().fields().size()));
            case LIST:
                return list(type.asListType().elementType(), from.getArray(at));
            case MAP:
                return map(type.asMapType(), from.getMap(at));
            case VARIANT:
                return bytes(from.getVariant(at).toJson(ZoneOffset.UTC).getBytes(StandardCharsets.UTF_8));
            default:
                throw new IllegalArgumentException("receipts do not know values of the type " + type);
        }
    }

    /** Hashes a struct by the ids of its fields; a field of null adds nothing. */
    private long struct(List<Types.NestedField> fields, InternalRow row) {
        long sum = seed[0];
        for (int at = 0; at < fields.size(); at++) {
            if (!row.isNullAt(at)) {
                long id = fields.get(at).fieldId() * ODD ^ seed[2];
                sum += fold(word(fields.get(at).type(), row, at) ^ seed[1], id);
            }
        }
        return sum;
    }

    private long list(Type type, ArrayData values) {
        long hash = values.numElements() ^ seed[1];
        for (int at = 0; at < values.numElements(); at++) {
            hash = fold(hash ^ (values.isNullAt(at) ? ODD : word(type, values, at)), seed[2] ^ at + 1);
        }
        return hash;
    }

    private long map(Types.MapType type, MapData map) {
        long sum = map.numElements() ^ seed[3];
        ArrayData values = map.valueArray();
        for (int at = 0; at < map.numElements(); at++) {
            long value = values.isNullAt(at) ? ODD : word(type.valueType(), values, at);
            sum += fold(word(type.keyType(), map.keyArray(), at) ^ seed[0], value ^ seed[1]);
        }
        return sum;
    }

    private long bytes(byte[] bytes) {
        return bytes(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
    }

    private long bytes(Object base, long start, int length) {
        long hash = length * ODD ^ seed[3];
        long last = start + length - 16;
        for (long at = start; at < last; at += 16) {
            hash = fold(Platform.getLong(base, at) ^ seed[1] ^ hash, Platform.getLong(base, at + 8) ^ seed[2]);
        }
        long first = 0;
        long second = 0;
        if (length >= 8) {
            first = Platform.getLong(base, Math.max(start, last));
            second = Platform.getLong(base, start + length - 8);
        } else if (length >= 4) {
            first = Platform.getInt(base, start);
            second = Platform.getInt(base, start + length - 4);
        } else if (length > 0) {
            first = Platform.getByte(base, start) << 8 | Platform.getByte(base, start + length / 2) & 0xff;
            second = Platform.getByte(base, start + length - 1);
        }
        return fold(first ^ seed[0] ^ hash, second ^ seed[2]);
    }

    private static long upper(long one, long two) {
        return Math.multiplyHigh(one, two) + (one >> 63 & two) + (two >> 63 & one);
    }

    private static long fold(long one, long two) {
        return one * two ^ upper(one, two);
    }
}
