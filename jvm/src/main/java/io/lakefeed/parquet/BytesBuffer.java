package io.lakefeed.parquet;

import static java.nio.ByteOrder.BIG_ENDIAN;
import static java.nio.ByteOrder.LITTLE_ENDIAN;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.math.BigInteger;
import java.util.Arrays;
import java.util.UUID;
import org.apache.iceberg.shaded.org.apache.parquet.bytes.BytesInput;
import org.apache.iceberg.shaded.org.apache.parquet.column.ColumnDescriptor;
import org.apache.iceberg.shaded.org.apache.parquet.column.statistics.BinaryStatistics;
import org.apache.iceberg.shaded.org.apache.parquet.column.statistics.Statistics;
import org.apache.iceberg.shaded.org.apache.parquet.io.api.Binary;
import org.apache.iceberg.shaded.org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of texts or bytes. Values and dictionary entries are stored in Parquet's plain encoding, so that a page can
 * copy them. A value follows its length, unless all values have the same length.
 */
final class BytesBuffer extends PageBuffer {
    private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, LITTLE_ENDIAN);
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, LITTLE_ENDIAN);
    private static final VarHandle ORDERED = MethodHandles.byteArrayViewVarHandle(long[].class, BIG_ENDIAN);
    private static final long MIX = 0x9E3779B97F4A7C15L;
    /** The initial size of the arrays: small, because a task may have open files for many partitions. */
    private static final int SMALLEST_TABLE = 1 << 7;
    private static final int SMALLEST = 1 << 10;

    private final ValueKind kind;
    /** The number of bytes of the length before a value; 0 if all values have the same length. */
    private final int prefix;

    /** The length of all values, if it is the same; otherwise 0. */
    private final int fixed;

    private byte[] bytes = new byte[SMALLEST];
    private int end;
    /** The indexes at which the values begin, after their lengths; then the end of the last value. */
    private int[] starts = new int[SMALLEST_TABLE];

    private byte[] entries = new byte[SMALLEST];
    private int entriesEnd;
    private int[] entryStarts = new int[SMALLEST_TABLE];
    private int[] entryLengths = new int[SMALLEST_TABLE];
    private long[] hashes = new long[SMALLEST_TABLE];
    private int size;
    private int[] table = new int[SMALLEST_TABLE * 2];
    /** For each dictionary entry, the last page that has it. */
    private int[] pageOfEntry = new int[SMALLEST_TABLE];

    private int page;

    BytesBuffer(ColumnDescriptor column, Limits limits, ValueKind kind) {
        super(column, limits);
        this.kind = kind;
        this.fixed = switch (type.getPrimitiveTypeName()) {
            case FIXED_LEN_BYTE_ARRAY -> type.getTypeLength();
            case INT96 -> Long.BYTES + Integer.BYTES;
            default -> 0;
        };
        this.prefix = type.getPrimitiveTypeName() == PrimitiveTypeName.BINARY ? Integer.BYTES : 0;
    }

    @Override
    void put(SpecializedGetters from, int at) {
        switch (kind) {
            case TEXT -> {
                UTF8String text = from.getUTF8String(at);
                int length = text.numBytes();
                begin(length);
                text.writeToMemory(bytes, Platform.BYTE_ARRAY_OFFSET + end);
                end += length;
            }
            case BYTES -> put(from.getBinary(at));
            case UUID -> {
                UUID uuid = UUID.fromString(from.getUTF8String(at).toString());
                begin(2 * Long.BYTES);
                ORDERED.set(bytes, end, uuid.getMostSignificantBits());
                ORDERED.set(bytes, end + Long.BYTES, uuid.getLeastSignificantBits());
                end += 2 * Long.BYTES;
            }
            case LONG_DECIMAL -> putDecimal(ValueKind.decimal(from, at, type).toJavaBigDecimal().unscaledValue());
            case INT96 -> {
                var julian = DateTimeUtils.toJulianDay(from.getLong(at));
                begin(fixed);
                LONGS.set(bytes, end, (long) julian._2());
                INTS.set(bytes, end + Long.BYTES, (int) julian._1());
                end += fixed;
            }
            default -> throw new IllegalArgumentException("values of the kind " + kind + " are not stored as bytes");
        }
    }

    private void put(byte[] value) {
        if (prefix == 0 && value.length != fixed) {
            throw new IllegalArgumentException("the column " + type.getName() + " has values of " + fixed
                    + " bytes, and a row has " + value.length);
        }
        begin(value.length);
        System.arraycopy(value, 0, bytes, end, value.length);
        end += value.length;
    }

    /** Stores a number as a two's complement of the column's fixed length, highest byte first. */
    private void putDecimal(BigInteger unscaled) {
        byte[] digits = unscaled.toByteArray();
        begin(fixed);
        Arrays.fill(bytes, end, end + fixed - digits.length, (byte) (unscaled.signum() < 0 ? -1 : 0));
        System.arraycopy(digits, 0, bytes, end + fixed - digits.length, digits.length);
        end += fixed;
    }

    private void begin(int length) {
        int required = Math.addExact(end, length + prefix + Long.BYTES);
        if (required > bytes.length) {
            bytes = Arrays.copyOf(bytes, required < 1 << 29 ? required * 2 : required);
        }
        if (count + 1 >= starts.length) {
            starts = Arrays.copyOf(starts, starts.length * 2);
        }
        if (prefix > 0) {
            INTS.set(bytes, end, length);
            end += prefix;
        }
        starts[count] = end;
    }

    private int length(int value) {
        return prefix == 0 ? fixed : (int) INTS.get(bytes, starts[value] - prefix);
    }

    @Override
    long plainBytes() {
        return end;
    }

    @Override
    BytesInput plainValues() {
        return BytesInput.from(bytes, 0, end);
    }

    @Override
    void clearValues() {
        end = 0;
        if (bytes.length > 2 * limits.pageBytes()) {
            // Do not keep the buffer of a huge value for the rest of the file.
            bytes = new byte[SMALLEST];
        }
    }

    @Override
    boolean index() {
        roomForIndices();
        for (int at = 0; at < count; at++) {
            int index = indexOf(starts[at], length(at));
            if (entriesEnd > limits.dictionaryBytes()) {
                return false;
            }
            indices[at] = index;
        }
        return true;
    }

    private int indexOf(int from, int length) {
        long hash = hash(bytes, from, length);
        int mask = table.length - 1;
        int place = (int) hash & mask;
        while (true) {
            int index = table[place] - 1;
            if (index < 0) {
                return added(from, length, hash, place);
            }
            if (hashes[index] == hash && isEntry(index, from, length)) {
                return index;
            }
            place = place + 1 & mask;
        }
    }

    private boolean isEntry(int index, int from, int length) {
        int start = entryStarts[index];
        return entryLengths[index] == length
                && Arrays.equals(bytes, from, from + length, entries, start, start + length);
    }

    /** Hashes eight bytes in each step; the last step also reads bytes after the value, and masks them. */
    private static long hash(byte[] from, int at, int length) {
        long hash = length * MIX;
        int until = at + length;
        for (; at <= until - Long.BYTES; at += Long.BYTES) {
            hash = (hash ^ (long) LONGS.get(from, at)) * MIX;
            hash ^= hash >>> 29;
        }
        int left = until - at;
        if (left > 0) {
            // Reading a long is safe: begin() leaves room for a long after each value.
            long rest = (long) LONGS.get(from, at) & (1L << 8 * left) - 1;
            hash = (hash ^ rest) * MIX;
        }
        return hash ^ hash >>> 32;
    }

    private int added(int from, int length, long hash, int place) {
        int required = Math.addExact(entriesEnd, prefix + length);
        if (required > entries.length) {
            entries = Arrays.copyOf(entries, Math.max(required, entries.length * 2));
        }
        System.arraycopy(bytes, from - prefix, entries, entriesEnd, prefix + length);
        if (size == entryStarts.length) {
            grow();
            place = free(hash);
        }
        int index = size++;
        entryStarts[index] = entriesEnd + prefix;
        entryLengths[index] = length;
        hashes[index] = hash;
        table[place] = size;
        entriesEnd = required;
        return index;
    }

    private int free(long hash) {
        int mask = table.length - 1;
        int place = (int) hash & mask;
        while (table[place] != 0) {
            place = place + 1 & mask;
        }
        return place;
    }

    private void grow() {
        entryStarts = Arrays.copyOf(entryStarts, size * 2);
        entryLengths = Arrays.copyOf(entryLengths, size * 2);
        hashes = Arrays.copyOf(hashes, size * 2);
        pageOfEntry = Arrays.copyOf(pageOfEntry, size * 2);
        table = new int[table.length * 2];
        for (int index = 0; index < size; index++) {
            table[free(hashes[index])] = index + 1;
        }
    }

    @Override
    void clearDictionary() {
        if (size > 0) {
            Arrays.fill(table, 0);
            size = 0;
            entriesEnd = 0;
        }
    }

    @Override
    long dictionaryBytes() {
        return entriesEnd;
    }

    @Override
    int dictionarySize() {
        return size;
    }

    @Override
    BytesInput dictionary() {
        return BytesInput.from(entries, 0, entriesEnd);
    }

    @Override
    void addStatistics(Statistics<?> statistics, boolean indexed) {
        if (kind == ValueKind.INT96) {
            // Parquet defines no order for INT96, so bounds would mean nothing.
            return;
        }
        BinaryStatistics found = (BinaryStatistics) statistics;
        if (indexed) {
            addIndexed(found);
            return;
        }
        int least = 0;
        int most = 0;
        for (int at = 1; at < count; at++) {
            if (compare(bytes, starts[at], length(at), starts[least], length(least)) < 0) {
                least = at;
            } else if (compare(bytes, starts[at], length(at), starts[most], length(most)) > 0) {
                most = at;
            }
        }
        found.updateStats(copied(bytes, starts[least], length(least)));
        found.updateStats(copied(bytes, starts[most], length(most)));
    }

    /** Adds the bounds of a page whose values are indexes; compares each dictionary entry only once. */
    private void addIndexed(BinaryStatistics found) {
        page++;
        int least = indices[0];
        int most = least;
        for (int at = 0; at < count; at++) {
            int index = indices[at];
            if (pageOfEntry[index] == page) {
                continue;
            }
            pageOfEntry[index] = page;
            int start = entryStarts[index];
            int length = entryLengths[index];
            if (compare(entries, start, length, entryStarts[least], entryLengths[least]) < 0) {
                least = index;
            }
            if (compare(entries, start, length, entryStarts[most], entryLengths[most]) > 0) {
                most = index;
            }
        }
        found.updateStats(copied(entries, entryStarts[least], entryLengths[least]));
        found.updateStats(copied(entries, entryStarts[most], entryLengths[most]));
    }

    /** Compares texts and bytes as unsigned bytes, and decimals as two's complements of one length. */
    private int compare(byte[] in, int start, int length, int otherStart, int otherLength) {
        if (kind == ValueKind.LONG_DECIMAL && in[start] < 0 != in[otherStart] < 0) {
            return in[start] < 0 ? -1 : 1;
        }
        return Arrays.compareUnsigned(in, start, start + length, in, otherStart, otherStart + otherLength);
    }

    /** Copies a value, because the page's buffer is reused. */
    private static Binary copied(byte[] from, int start, int length) {
        return Binary.fromConstantByteArray(Arrays.copyOfRange(from, start, start + length));
    }
}
