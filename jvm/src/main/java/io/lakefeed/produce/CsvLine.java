package io.lakefeed.produce;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.csv.UnivocityParser;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;

/**
 * Reads one line of CSV into a row, straight from its bytes, if all of it is written plainly: no quote, no control
 * character, as many values as columns, and numbers that need no rounding.
 */
final class CsvLine {
    private static final int ROW_BYTES = 256;
    /** The most decimal digits that always fit. */
    private static final int LONG_DIGITS = 18;
    /** Integers below are exact, and the quotient of two exact numbers is rounded once, as IEEE 754 asks. */
    private static final long EXACT_DOUBLE = 1L << 53;
    private static final long EXACT_FLOAT = 1L << 24;
    private static final double[] POWERS = new double[23];
    private static final int FLOAT_POWERS = 10;

    static {
        Arrays.setAll(POWERS, power -> Double.parseDouble("1e" + power));
    }

    /** The way to read a value. */
    private enum Kind {
        BYTE,
        SHORT,
        INT,
        LONG,
        FLOAT,
        DOUBLE,
        BOOLEAN,
        TEXT,
        DAY,
        INSTANT,
        DECIMAL
    }

    private record Column(int place, Kind kind, boolean nullable, DataType type, Function1<String, Object> spark) {}

    /** By the number in the line; null for a column that is not asked for. */
    private final Column[] columns;

    private final int[] ends;
    private final UnsafeRowWriter row;
    private long digits;
    private int decimals;

    /**
     * Creates a reader of lines.
     *
     * @param given the columns of the line
     * @param required those of them that the row has, in its order
     * @param spark reads dates, times and decimals
     */
    CsvLine(StructType given, StructType required, UnivocityParser spark) {
        columns = new Column[given.size()];
        ends = new int[given.size()];
        row = new UnsafeRowWriter(required.size(), ROW_BYTES);
        for (int place = 0; place < required.size(); place++) {
            StructField field = required.fields()[place];
            columns[given.fieldIndex(field.name())] = new Column(
                    place,
                    kind(field.dataType()),
                    field.nullable(),
                    field.dataType(),
                    spark.makeConverter(field.name(), field.dataType(), field.nullable()));
        }
    }

    /** Returns whether rows of this type can be written. */
    static boolean canWrite(StructType type) {
        return Arrays.stream(type.fields()).allMatch(field -> kind(field.dataType()) != null);
    }

    private static Kind kind(DataType type) {
        if (type instanceof ByteType) {
            return Kind.BYTE;
        }
        if (type instanceof ShortType) {
            return Kind.SHORT;
        }
        if (type instanceof IntegerType) {
            return Kind.INT;
        }
        if (type instanceof LongType) {
            return Kind.LONG;
        }
        if (type instanceof FloatType) {
            return Kind.FLOAT;
        }
        if (type instanceof DoubleType) {
            return Kind.DOUBLE;
        }
        if (type instanceof BooleanType) {
            return Kind.BOOLEAN;
        }
        if (type instanceof StringType) {
            return Kind.TEXT;
        }
        if (type instanceof DateType) {
            return Kind.DAY;
        }
        if (type instanceof TimestampType || type instanceof TimestampNTZType) {
            return Kind.INSTANT;
        }
        return type instanceof DecimalType ? Kind.DECIMAL : null;
    }

    /** Returns the row of a line, which is valid until the next; null if Spark's parser has to read the line. */
    UnsafeRow read(byte[] line, int length) {
        int found = 0;
        boolean blank = true;
        for (int at = 0; at < length; at++) {
            byte each = line[at];
            if (each == ',') {
                if (found == ends.length) {
                    return null;
                }
                ends[found++] = at;
            } else if (each == '"' || each >= 0 && each < ' ') {
                return null;
            }
            blank &= each == ' ';
        }
        if (blank || found != ends.length - 1) {
            return null;
        }
        ends[found] = length;
        row.reset();
        row.zeroOutNullBytes();
        int begin = 0;
        for (int number = 0; number < columns.length; number++) {
            int end = ends[number];
            if (columns[number] != null && !write(columns[number], line, begin, end)) {
                return null;
            }
            begin = end + 1;
        }
        return row.getRow();
    }

    private boolean write(Column column, byte[] line, int begin, int end) {
        int place = column.place;
        if (begin == end) {
            if (column.kind == Kind.DECIMAL) {
                DecimalType type = (DecimalType) column.type;
                row.write(place, (Decimal) null, type.precision(), type.scale());
            } else {
                row.setNullAt(place);
            }
            return column.nullable;
        }
        switch (column.kind) {
            case TEXT -> text(place, line, begin, end);
            case DOUBLE -> {
                if (!decimal(line, begin, end) || digits > EXACT_DOUBLE || decimals >= POWERS.length) {
                    return false;
                }
                double value = digits / POWERS[decimals];
                row.write(place, line[begin] == '-' ? -value : value);
            }
            case FLOAT -> {
                if (!decimal(line, begin, end) || digits > EXACT_FLOAT || decimals > FLOAT_POWERS) {
                    return false;
                }
                float value = (float) digits / (float) POWERS[decimals];
                row.write(place, line[begin] == '-' ? -value : value);
            }
            case LONG, INT, SHORT, BYTE -> {
                if (!decimal(line, begin, end) || decimals > 0 || line[end - 1] == '.') {
                    return false;
                }
                return whole(column.kind, place, line[begin] == '-' ? -digits : digits);
            }
            case BOOLEAN -> {
                boolean yes = is(line, begin, end, "true");
                if (!yes && !is(line, begin, end, "false")) {
                    return false;
                }
                row.write(place, yes);
            }
            default -> {
                return bySpark(column, line, begin, end);
            }
        }
        return true;
    }

    private boolean whole(Kind kind, int place, long value) {
        switch (kind) {
            case LONG -> row.write(place, value);
            case INT -> row.write(place, (int) value);
            case SHORT -> row.write(place, (short) value);
            default -> row.write(place, (byte) value);
        }
        return switch (kind) {
            case LONG -> true;
            case INT -> value == (int) value;
            case SHORT -> value == (short) value;
            default -> value == (byte) value;
        };
    }

    /** Reads the digits of a number and how many follow its point; false if it has anything else, or too many. */
    private boolean decimal(byte[] line, int begin, int end) {
        int at = line[begin] == '-' ? begin + 1 : begin;
        int point = -1;
        long value = 0;
        if (end - at > LONG_DIGITS || at == end || line[at] == '.') {
            return false;
        }
        for (; at < end; at++) {
            int digit = line[at] - '0';
            if (digit >= 0 && digit <= 9) {
                value = value * 10 + digit;
            } else if (line[at] == '.' && point < 0) {
                point = at;
            } else {
                return false;
            }
        }
        digits = value;
        decimals = point < 0 ? 0 : end - point - 1;
        return true;
    }

    private void text(int place, byte[] line, int begin, int end) {
        for (int at = begin; at < end; at++) {
            if (line[at] < 0) {
                // Decoded, so that bytes which are no UTF-8 become what Spark makes of them.
                row.write(place, UTF8String.fromString(new String(line, begin, end - begin, StandardCharsets.UTF_8)));
                return;
            }
        }
        row.write(place, line, begin, end - begin);
    }

    private static boolean is(byte[] line, int begin, int end, String word) {
        boolean same = end - begin == word.length();
        for (int at = 0; same && at < word.length(); at++) {
            same = line[begin + at] == word.charAt(at);
        }
        return same;
    }

    private boolean bySpark(Column column, byte[] line, int begin, int end) {
        Object value;
        try {
            value = column.spark.apply(new String(line, begin, end - begin, StandardCharsets.UTF_8));
        } catch (RuntimeException misfit) {
            // Spark's parser, which now gets the line, says what is wrong.
            return false;
        }
        switch (column.kind) {
            case DAY -> row.write(column.place, (int) (Integer) value);
            case INSTANT -> row.write(column.place, (long) (Long) value);
            default -> {
                DecimalType type = (DecimalType) column.type;
                row.write(column.place, (Decimal) value, type.precision(), type.scale());
            }
        }
        return true;
    }
}
