package io.lakefeed.decode;

import java.math.BigDecimal;
import java.math.MathContext;
import java.time.DateTimeException;
import java.time.LocalDate;
import java.time.ZoneId;
import java.util.Base64;
import java.util.Map;
import java.util.function.Function;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/** Converts text to a value of one of Spark's types, for JSON strings and CSV. */
public interface TextValue {
    /** The most characters of a number: longer ones fit no type, and parsing them takes long. */
    int LONGEST_NUMBER = 1_000;

    /** Matches a date with or without a time; Spark would also accept "2026" and "12:30" as timestamps. */
    Pattern MOMENT = Pattern.compile("\\d{4}-\\d{2}-\\d{2}([Tt ].*)?");

    int LONGEST_MOMENT = 100;

    /** Up to this number, a double represents each whole number exactly. */
    long WHOLE_DOUBLES = 1L << 53;

    /** Up to this number, a float represents each whole number exactly. */
    long WHOLE_FLOATS = 1L << 24;

    /** Returns Spark's internal value; null if the text does not fit the type. */
    Object of(String text);

    /**
     * The rules for reading values.
     *
     * @param zone the time zone of timestamps that state no time zone
     * @param lenient whether JSON may have numbers and booleans as text, NaN and infinities, and whole numbers that
     * lose digits as doubles
     */
    record Rules(ZoneId zone, boolean lenient) {
        /** Reads the decoder's options {@code time-zone} (default UTC) and {@code lenient} (default false). */
        public static Rules of(Map<String, String> options) {
            boolean lenient = Boolean.parseBoolean(options.get("lenient"));
            return new Rules(ZoneId.of(options.getOrDefault("time-zone", "UTC")), lenient);
        }
    }

    /** Returns the converter of text to a type; null if no text can become a value of the type. */
    static TextValue as(DataType type, Rules rules) {
        if (type instanceof StringType) {
            return UTF8String::fromString;
        }
        if (type == DataTypes.BinaryType) {
            return TextValue::binary;
        }
        if (type == DataTypes.BooleanType) {
            return text -> switch (text) {
                case "true" -> true;
                case "false" -> false;
                default -> null;
            };
        }
        if (type == DataTypes.DateType) {
            return TextValue::date;
        }
        ZoneId zone = rules.zone();
        if (type == DataTypes.TimestampType) {
            return text -> moment(text, each -> DateTimeUtils.stringToTimestamp(each, zone));
        }
        if (type == DataTypes.TimestampNTZType) {
            return text -> moment(text, each -> DateTimeUtils.stringToTimestampWithoutTimeZone(each, false));
        }
        if (type == DataTypes.DoubleType || type == DataTypes.FloatType) {
            boolean single = type == DataTypes.FloatType;
            return text -> switch (text) {
                case "NaN" -> single ? (Object) Float.NaN : (Object) Double.NaN;
                case "Infinity" -> single ? (Object) Float.POSITIVE_INFINITY : (Object) Double.POSITIVE_INFINITY;
                case "-Infinity" -> single ? (Object) Float.NEGATIVE_INFINITY : (Object) Double.NEGATIVE_INFINITY;
                default -> number(text, type, rules.lenient());
            };
        }
        return isNumber(type) ? text -> number(text, type, rules.lenient()) : null;
    }

    /** Returns whether {@link #number} can return values of the type. */
    static boolean isNumber(DataType type) {
        return type == DataTypes.LongType
                || type == DataTypes.IntegerType
                || type == DataTypes.ShortType
                || type == DataTypes.ByteType
                || type == DataTypes.DoubleType
                || type == DataTypes.FloatType
                || type instanceof DecimalType;
    }

    /** Returns a whole number as this type; null if it does not fit, or if only its text can tell. */
    static Object number(long number, DataType type) {
        if (type == DataTypes.LongType) {
            return number;
        }
        if (type == DataTypes.IntegerType) {
            return (int) number == number ? (Object) (int) number : null;
        }
        if (type == DataTypes.ShortType) {
            return (short) number == number ? (Object) (short) number : null;
        }
        if (type == DataTypes.ByteType) {
            return (byte) number == number ? (Object) (byte) number : null;
        }
        if (type == DataTypes.DoubleType) {
            return Math.abs(number) <= WHOLE_DOUBLES && number != Long.MIN_VALUE ? (Object) (double) number : null;
        }
        if (type == DataTypes.FloatType) {
            return Math.abs(number) <= WHOLE_FLOATS && number != Long.MIN_VALUE ? (Object) (float) number : null;
        }
        return null;
    }

    /**
     * Returns a number as a value of the type; null if the text is not a number, does not fit, or would lose digits.
     *
     * @param lenient whether a whole number may lose digits as a double
     */
    static Object number(String text, DataType type, boolean lenient) {
        if (text.isEmpty() || text.length() > LONGEST_NUMBER || !isAscii(text)) {
            return null;
        }
        try {
            if (type == DataTypes.DoubleType) {
                double value = Double.parseDouble(text);
                return Double.isInfinite(value) || !lenient && !keeps(text, value, 17) ? null : value;
            }
            if (type == DataTypes.FloatType) {
                float value = Float.parseFloat(text);
                return Float.isInfinite(value) || !lenient && !keeps(text, value, 9) ? null : value;
            }
            return exact(new BigDecimal(text), type);
        } catch (NumberFormatException none) {
            return null;
        }
    }

    /** Returns whether a number is free of hexadecimal notation, which Java would accept. */
    private static boolean isAscii(String number) {
        for (int at = 0; at < number.length(); at++) {
            char c = number.charAt(at);
            if ((c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E') {
                return false;
            }
        }
        return true;
    }

    /**
     * Returns whether a binary number has the value of a text. A whole number must keep all digits, so that no
     * identifier changes, or be the shortest text for the binary number, as JavaScript writes it. A number with a
     * fraction or exponent may be rounded, but not to zero.
     */
    private static boolean keeps(String text, double value, int digits) {
        if (text.indexOf('.') < 0 && text.indexOf('e') < 0 && text.indexOf('E') < 0) {
            if (Math.abs(value) < (digits == 9 ? WHOLE_FLOATS : WHOLE_DOUBLES) && text.length() <= 16) {
                return true;
            }
            BigDecimal decimal = new BigDecimal(text);
            BigDecimal binary = new BigDecimal(value);
            int precision = decimal.signum() == 0 ? 1 : decimal.stripTrailingZeros().precision();
            return binary.compareTo(decimal) == 0
                    || precision <= digits && binary.round(new MathContext(precision)).compareTo(decimal) == 0;
        }
        return value != 0 || new BigDecimal(text).signum() == 0;
    }

    private static Object exact(BigDecimal number, DataType type) {
        int digits = type instanceof DecimalType decimal ? decimal.precision() - decimal.scale() : 19;
        // Check the size before computing: a short text such as 1e999999999 would make the computation slow.
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
                return null; // This number is between -1 and 1, so it is not whole.
            }
            if (type == DataTypes.LongType) {
                return number.longValueExact();
            }
            if (type == DataTypes.IntegerType) {
                return number.intValueExact();
            }
            return type == DataTypes.ShortType ? (Object) number.shortValueExact() : (Object) number.byteValueExact();
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
        if (text.length() != "2026-01-02".length()) {
            return null; // A year must have four digits, as in timestamps.
        }
        try {
            return Math.toIntExact(LocalDate.parse(text).toEpochDay());
        } catch (DateTimeException | ArithmeticException none) {
            return null;
        }
    }

    /** Reads a timestamp. RFC 3339 allows t and z in lower case, Spark does not. */
    private static Object moment(String text, Function<UTF8String, Option<Object>> read) {
        if (text.length() > LONGEST_MOMENT || !MOMENT.matcher(text).matches()) {
            return null;
        }
        String upper = text.length() > 10 && (text.charAt(10) == 't' || text.endsWith("z")) ? upperCase(text) : text;
        return read.apply(UTF8String.fromString(upper)).getOrElse(() -> null);
    }

    private static String upperCase(String text) {
        String date = text.substring(0, 10) + (text.charAt(10) == 't' ? 'T' : text.charAt(10));
        String time = text.substring(11);
        return date + (time.endsWith("z") ? time.substring(0, time.length() - 1) + 'Z' : time);
    }
}
