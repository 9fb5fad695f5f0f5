package io.lakefeed.upsert;

import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.StructType;

/**
 * Turns the values that order the changes of a key into numbers with the same order as in Spark.
 *
 * <p>The smallest 64-bit number stands for null, which comes first in Spark, so the value -2^63 has no number.
 */
final class KeyOrder implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final long NULL = Long.MIN_VALUE;
    private static final long[] NONE = {};

    private final int[] columns;
    private final DataType[] types;

    KeyOrder(StructType rows, List<String> names) {
        columns = names.stream().mapToInt(rows::fieldIndex).toArray();
        types = Arrays.stream(columns).mapToObj(at -> rows.apply(at).dataType()).toArray(DataType[]::new);
    }

    int width() {
        return columns.length;
    }

    /** Returns whether both objects have columns of the same types: then equal values have equal numbers. */
    boolean hasTypesOf(KeyOrder other) {
        return Arrays.equals(types, other.types);
    }

    /** Returns whether values of this type can be turned into numbers. */
    static boolean takes(DataType type) {
        return KeyHash.isWhole(type)
                || type instanceof FloatType
                || type instanceof DoubleType
                || type instanceof DecimalType decimal && decimal.precision() <= Decimal.MAX_LONG_DIGITS();
    }

    /** Returns a number for each column; null if one of the values has no number. */
    long[] of(InternalRow row) {
        if (columns.length == 0) {
            return NONE;
        }
        long[] numbers = new long[columns.length];
        for (int at = 0; at < numbers.length; at++) {
            boolean isNull = row.isNullAt(columns[at]);
            numbers[at] = isNull ? NULL : number(row, columns[at], types[at]);
            if (numbers[at] == NULL && !isNull) {
                return null;
            }
        }
        return numbers;
    }

    private static long number(InternalRow row, int column, DataType type) {
        if (type instanceof DecimalType decimal) {
            return row.getDecimal(column, decimal.precision(), decimal.scale()).toUnscaledLong();
        }
        if (type instanceof FloatType) {
            return sortable(row.getFloat(column));
        }
        return type instanceof DoubleType ? sortable(row.getDouble(column)) : KeyHash.whole(row, column, type);
    }

    private static long sortable(double value) {
        // Both zeros get the same number; and so do all NaNs, which come after all other numbers.
        long bits = Double.doubleToLongBits(value == 0 ? 0 : value);
        return bits ^ bits >> 63 & Long.MAX_VALUE;
    }
}
