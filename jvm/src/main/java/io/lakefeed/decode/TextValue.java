package io.lakefeed.decode;

import java.math.BigDecimal;
import java.time.DateTimeException;
import java.time.LocalDate;
import java.time.ZoneId;
import java.util.Base64;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.types.BinaryType;
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
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/** What a piece of text is as a value of one of Spark's types, as JSON strings and CSV have them. */
interface TextValue {
    /** Nothing but a whole day, with a time behind it or not: Spark would take "2026" and "12:30" for moments too. */
    Pattern MOMENT = Pattern.compile("\\d{4}-\\d{2}-\\d{2}([T ].*)?");

    /** Spark's internal value; null if the text is none of the type. */
    Object of(String text);

    /**
     * How text becomes values of a type.
     *
     * @param zone of moments that do not say theirs
     * @return null if text never becomes one
     */
    static TextValue as(DataType type, ZoneId zone) {
        if (type instanceof StringType) {
            return UTF8String::fromString;
        }
        if (type instanceof BinaryType) {
            return TextValue::binary;
        }
        if (type instanceof BooleanType) {
            return text -> switch (text) {
                case "true" -> true;
                case "false" -> false;
                default -> null;
            };
        }
        if (type instanceof DateType) {
            return TextValue::date;
        }
        if (type instanceof TimestampType) {
            return text -> moment(text, DateTimeUtils.stringToTimestamp(UTF8String.fromString(text), zone));
        }
        if (type instanceof TimestampNTZType) {
            return text -> moment(
                    text, DateTimeUtils.stringToTimestampWithoutTimeZone(UTF8String.fromString(text), false));
        }
        if (type instanceof DoubleType || type instanceof FloatType) {
            boolean single = type instanceof FloatType;
            return text -> switch (text) {
                case "NaN" -> single ? (Object) Float.NaN : (Object) Double.NaN;
                case "Infinity" -> single ? (Object) Float.POSITIVE_INFINITY : (Object) Double.POSITIVE_INFINITY;
                case "-Infinity" -> single ? (Object) Float.NEGATIVE_INFINITY : (Object) Double.NEGATIVE_INFINITY;
                default -> number(text, type);
            };
        }
        return isNumber(type) ? text -> number(text, type) : null;
    }

    /** Whether {@link #number} makes values of the type. */
    static boolean isNumber(DataType type) {
        return type instanceof LongType
                || type instanceof IntegerType
                || type instanceof ShortType
                || type instanceof ByteType
                || type instanceof DoubleType
                || type instanceof FloatType
                || type instanceof DecimalType;
    }

    private static Object number(String text, DataType type) {
        try {
            return number(new BigDecimal(text), type);
        } catch (NumberFormatException none) {
            return null;
        }
    }

    /** The number as a value of the type; null if it does not fit, or would lose digits that the type keeps. */
    static Object number(BigDecimal number, DataType type) {
        if (type instanceof DoubleType) {
            double value = number.doubleValue();
            return Double.isInfinite(value) ? null : value;
        }
        if (type instanceof FloatType) {
            float value = number.floatValue();
            return Float.isInfinite(value) ? null : value;
        }
        int digits = type instanceof DecimalType decimal ? decimal.precision() - decimal.scale() : 19;
        // Before anything is computed: 1e999999999 is short to write.
        if (number.signum() != 0 && (long) number.precision() - number.scale() > digits) {
            return null;
        }
        try {
            if (type instanceof DecimalType decimal) {
                if (number.signum() != 0 && (long) number.scale() - number.precision() > decimal.scale()) {
                    return null;
                }
                BigDecimal exact = number.signum() == 0 ? BigDecimal.ZERO : number.stripTrailingZeros();
                return exact.scale() > decimal.scale() ? null : Decimal.apply(exact, decimal.precision(), decimal.scale());
            }
            if (number.signum() != 0 && number.scale() > number.precision()) {
                return null; // Below 1, and so no whole number.
            }
            if (type instanceof LongType) {
                return number.longValueExact();
            }
            if (type instanceof IntegerType) {
                return number.intValueExact();
            }
            return type instanceof ShortType ? (Object) number.shortValueExact() : (Object) number.byteValueExact();
        } catch (ArithmeticException unfit) {
            return null;
        }
    }

    private static Object binary(String text) {
        try {
            return Base64.getDecoder().decode(text);
        } catch (IllegalArgumentException none) {
            return null;
        }
    }

    private static Object date(String text) {
        try {
            return Math.toIntExact(LocalDate.parse(text).toEpochDay());
        } catch (DateTimeException | ArithmeticException none) {
            return null;
        }
    }

    private static Object moment(String text, Option<Object> found) {
        return MOMENT.matcher(text).matches() && found.isDefined() ? found.get() : null;
    }
}
