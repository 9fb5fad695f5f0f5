package io.lakefeed.parquet;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.iceberg.FieldMetrics;
import org.apache.iceberg.shaded.org.apache.parquet.bytes.BytesInput;
import org.apache.iceberg.shaded.org.apache.parquet.column.ColumnDescriptor;
import org.apache.iceberg.shaded.org.apache.parquet.column.statistics.BooleanStatistics;
import org.apache.iceberg.shaded.org.apache.parquet.column.statistics.DoubleStatistics;
import org.apache.iceberg.shaded.org.apache.parquet.column.statistics.FloatStatistics;
import org.apache.iceberg.shaded.org.apache.parquet.column.statistics.IntStatistics;
import org.apache.iceberg.shaded.org.apache.parquet.column.statistics.LongStatistics;
import org.apache.iceberg.shaded.org.apache.parquet.column.statistics.Statistics;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;

/** A column of booleans or numbers, which are stored as the lower bits of a long. */
final class FixedBuffer extends PageBuffer {
    /** The initial size of the hash table: small, because a task may have open files for many partitions. */
    private static final int SMALLEST_TABLE = 1 << 7;
    private static final long MIX = 0x9E3779B97F4A7C15L;

    private final ValueKind kind;
    private final int width;
    private long[] values;
    private byte[] plain = new byte[0];

    private long[] entries = new long[SMALLEST_TABLE / 2];

    private int size;
    /** A hash table with open addressing. A slot has the index of a value plus 1; an empty slot has 0. */
    private int[] table = new int[SMALLEST_TABLE];

    private long nans;
    private long counted;
    private double lowest = Double.POSITIVE_INFINITY;
    private double highest = Double.NEGATIVE_INFINITY;

    FixedBuffer(ColumnDescriptor column, Limits limits, ValueKind kind) {
        super(column, limits);
        this.kind = kind;
        this.width = switch (type.getPrimitiveTypeName()) {
            case BOOLEAN -> 1;
            case INT32, FLOAT -> Integer.BYTES;
            case INT64, DOUBLE -> Long.BYTES;
            default -> throw new IllegalArgumentException("values of the type " + type + " are not stored as numbers");
        };
        this.values = new long[SMALLEST_TABLE];
    }

    @Override
    void put(SpecializedGetters from, int at) {
        if (count == values.length) {
            values = Arrays.copyOf(values, count * 2);
        }
        values[count] = switch (kind) {
            case LONG -> from.getLong(at);
            case DOUBLE -> Double.doubleToRawLongBits(from.getDouble(at));
            case INT -> from.getInt(at);
            case FLOAT -> Float.floatToRawIntBits(from.getFloat(at));
            case BOOLEAN -> from.getBoolean(at) ? 1 : 0;
            case SHORT -> from.getShort(at);
            case BYTE -> from.getByte(at);
            case DECIMAL -> ValueKind.decimal(from, at, type).toUnscaledLong();
            default -> throw new IllegalArgumentException("values of the kind " + kind + " are not stored as numbers");
        };
    }

    @Override
    boolean hasDictionary() {
        return kind != ValueKind.BOOLEAN;
    }

    @Override
    long plainBytes() {
        return kind == ValueKind.BOOLEAN ? count + 7 >> 3 : (long) count * width;
    }

    @Override
    BytesInput plainValues() {
        int size = (int) plainBytes();
        plain = plain.length < size ? new byte[size] : plain;
        if (kind == ValueKind.BOOLEAN) {
            Arrays.fill(plain, 0, size, (byte) 0);
            for (int at = 0; at < count; at++) {
                plain[at >> 3] |= (byte) (values[at] << (at & 7));
            }
        } else {
            write(values, count, plain);
        }
        return BytesInput.from(plain, 0, size);
    }

    private void write(long[] from, int number, byte[] into) {
        ByteBuffer buffer = ByteBuffer.wrap(into).order(LITTLE_ENDIAN);
        if (width == Long.BYTES) {
            buffer.asLongBuffer().put(from, 0, number);
            return;
        }
        for (int at = 0; at < number; at++) {
            buffer.putInt((int) from[at]);
        }
    }

    @Override
    void clearValues() {}

    @Override
    boolean index() {
        roomForIndices();
        int most = limits.dictionaryBytes() / width;
        int last = 0;
        for (int at = 0; at < count; at++) {
            long value = values[at];
            if (at == 0 || value != entries[last]) {
                last = indexOf(value);
                if (size > most) {
                    return false;
                }
            }
            indices[at] = last;
        }
        return true;
    }

    private int indexOf(long value) {
        int mask = table.length - 1;
        int place = place(value, mask);
        while (true) {
            int index = table[place] - 1;
            if (index < 0) {
                return added(value, place);
            }
            if (entries[index] == value) {
                return index;
            }
            place = place + 1 & mask;
        }
    }

    private static int place(long value, int mask) {
        long mixed = value * MIX;
        return (int) (mixed ^ mixed >>> 32) >>> 7 & mask;
    }

    private int added(long value, int place) {
        int index = size++;
        entries[index] = value;
        table[place] = size;
        if (size == entries.length) {
            grow();
        }
        return index;
    }

    private void grow() {
        entries = Arrays.copyOf(entries, size * 2);
        table = new int[table.length * 2];
        int mask = table.length - 1;
        for (int index = 0; index < size; index++) {
            int place = place(entries[index], mask);
            while (table[place] != 0) {
                place = place + 1 & mask;
            }
            table[place] = index + 1;
        }
    }

    @Override
    void clearDictionary() {
        if (size > 0) {
            Arrays.fill(table, 0);
            size = 0;
        }
    }

    @Override
    long dictionaryBytes() {
        return (long) size * width;
    }

    @Override
    int dictionarySize() {
        return size;
    }

    @Override
    BytesInput dictionary() {
        byte[] bytes = new byte[size * width];
        write(entries, size, bytes);
        return BytesInput.from(bytes);
    }

    @Override
    void addStatistics(Statistics<?> statistics, boolean indexed) {
        switch (type.getPrimitiveTypeName()) {
            case DOUBLE, FLOAT -> addReals(statistics);
            default -> addWhole(statistics);
        }
    }

    private void addWhole(Statistics<?> statistics) {
        long least = Long.MAX_VALUE;
        long most = Long.MIN_VALUE;
        for (int at = 0; at < count; at++) {
            least = Math.min(least, values[at]);
            most = Math.max(most, values[at]);
        }
        if (statistics instanceof LongStatistics longs) {
            longs.setMinMax(least, most);
        } else if (statistics instanceof IntStatistics ints) {
            ints.setMinMax((int) least, (int) most);
        } else {
            ((BooleanStatistics) statistics).setMinMax(least != 0, most != 0);
        }
    }

    /** Adds the bounds of floating-point values, without NaN: it is above all numbers, and Iceberg ignores it. */
    private void addReals(Statistics<?> statistics) {
        double least = real(0);
        double most = least;
        for (int at = 0; at < count; at++) {
            double value = real(at);
            least = Double.compare(value, least) < 0 ? value : least;
            most = Double.compare(value, most) > 0 ? value : most;
        }
        if (statistics instanceof DoubleStatistics doubles) {
            doubles.setMinMax(least, most);
        } else {
            ((FloatStatistics) statistics).setMinMax((float) least, (float) most);
        }
        addBounds(least, most);
    }

    private double real(int at) {
        return kind == ValueKind.DOUBLE ? Double.longBitsToDouble(values[at]) : Float.intBitsToFloat((int) values[at]);
    }

    private void addBounds(double least, double most) {
        counted += count;
        if (Double.isNaN(most)) {
            addBoundsWithoutNaN();
            return;
        }
        lowest = Double.compare(least, lowest) < 0 ? least : lowest;
        highest = Double.compare(most, highest) > 0 ? most : highest;
    }

    private void addBoundsWithoutNaN() {
        for (int at = 0; at < count; at++) {
            double value = real(at);
            if (Double.isNaN(value)) {
                nans++;
            } else {
                lowest = Double.compare(value, lowest) < 0 ? value : lowest;
                highest = Double.compare(value, highest) > 0 ? value : highest;
            }
        }
    }

    @Override
    FieldMetrics<?> metrics() {
        if (kind != ValueKind.DOUBLE && kind != ValueKind.FLOAT) {
            return null;
        }
        boolean bounded = counted > nans;
        return new FieldMetrics<>(
                type.getId().intValue(),
                counted + nullsOfFile,
                nullsOfFile,
                nans,
                bounded ? bound(lowest) : null,
                bounded ? bound(highest) : null,
                kind == ValueKind.DOUBLE ? Types.DoubleType.get() : Types.FloatType.get());
    }

    private Number bound(double value) {
        return kind == ValueKind.DOUBLE ? (Number) value : (Number) (float) value;
    }
}
