package io.lakefeed.decode;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.Base64;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** Writes JSON into a reused buffer of bytes: for short texts, a library's generator costs more than the writing. */
final class JsonText {
    private static final int KEPT = 1 << 20;
    private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

    private final MemoryBudget budget;
    private byte[] bytes = new byte[256];
    private int length;
    private boolean first = true;

    JsonText(MemoryBudget budget) {
        this.budget = budget;
    }

    /** Returns the text that was written, and starts a new one. */
    UTF8String taken() {
        budget.charge(MemoryBudget.OBJECT + length);
        UTF8String text = UTF8String.fromBytes(Arrays.copyOf(bytes, length));
        begin();
        return text;
    }

    void begin() {
        length = 0;
        first = true;
        if (bytes.length > KEPT) {
            bytes = new byte[256];
        }
    }

    void open(char brace) {
        put((byte) brace);
        first = true;
    }

    void close(char brace) {
        put((byte) brace);
        first = false;
    }

    /** Writes a comma unless the next value is the first of its object or array. */
    void next() {
        if (!first) {
            put((byte) ',');
        }
        first = false;
    }

    void name(byte[] utf8) {
        next();
        string(utf8);
        put((byte) ':');
    }

    void number(long whole) {
        if (whole >= 0 && whole < 10) {
            put((byte) ('0' + whole)); // The most frequent number is 0, of unset fields.
        } else {
            plain(Long.toString(whole));
        }
    }

    /** Writes text without quotes: numbers, true, null. */
    void plain(String ascii) {
        for (int at = 0; at < ascii.length(); at++) {
            put((byte) ascii.charAt(at));
        }
    }

    /** Writes a floating-point number; NaN and infinities become text, because JSON does not have them. */
    void real(Number real) {
        if (Double.doubleToRawLongBits(real.doubleValue()) == 0) {
            plain("0.0");
            return;
        }
        boolean isFinite = Double.isFinite(real.doubleValue());
        plain(isFinite ? real.toString() : "\"" + real + "\"");
    }

    /** Writes a value of Spark that is no array, map or struct, in the form of {@code to_json}. */
    void value(Object value, DataType type) {
        if (type == DataTypes.DateType) {
            plain('"' + LocalDate.ofEpochDay((Integer) value).toString() + '"');
        } else if (type == DataTypes.TimestampType) {
            plain('"' + DateTimeFormatter.ISO_INSTANT.format(moment((Long) value)) + '"');
        } else if (type == DataTypes.TimestampNTZType) {
            LocalDateTime local = LocalDateTime.ofInstant(moment((Long) value), ZoneOffset.UTC);
            plain('"' + DateTimeFormatter.ISO_LOCAL_DATE_TIME.format(local) + '"');
        } else if (value instanceof UTF8String text) {
            string(text.getBytes());
        } else if (value instanceof byte[] binary) {
            base64(binary);
        } else if (value instanceof Double || value instanceof Float) {
            real((Number) value);
        } else {
            plain(value instanceof Decimal decimal ? decimal.toJavaBigDecimal().toString() : String.valueOf(value));
        }
    }

    private static Instant moment(long micros) {
        return Instant.EPOCH.plus(micros, ChronoUnit.MICROS);
    }

    void string(byte[] utf8) {
        put((byte) '"');
        for (byte each : utf8) {
            if (each == '"' || each == '\\') {
                put((byte) '\\');
                put(each);
            } else if (each >= 0 && each < ' ') {
                plain("\\u00");
                put(HEX[each >> 4]);
                put(HEX[each & 15]);
            } else {
                put(each);
            }
        }
        put((byte) '"');
    }

    void base64(byte[] binary) {
        string(Base64.getEncoder().encode(binary));
    }

    /** Writes a text that is already JSON. */
    void raw(byte[] json) {
        for (byte each : json) {
            put(each);
        }
    }

    private void put(byte each) {
        if (length == bytes.length) {
            budget.charge(2L * length);
            bytes = Arrays.copyOf(bytes, 2 * length);
        }
        bytes[length++] = each;
    }
}
