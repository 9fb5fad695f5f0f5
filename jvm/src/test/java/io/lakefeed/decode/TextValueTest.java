package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.time.ZoneId;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class TextValueTest {
    private static Object value(String type, String text, boolean lenient, String zone) {
        return TextValue.as(DataType.fromDDL(type), new TextValue.Rules(ZoneId.of(zone), lenient)).of(text);
    }

    @ParameterizedTest(name = "{1} as {0} is {2}")
    @CsvSource(nullValues = "none", value = {
        "BIGINT, 9223372036854775807, 9223372036854775807",
        "BIGINT, 9223372036854775808, none",
        "BIGINT, -9223372036854775808, -9223372036854775808",
        "BIGINT, +5, 5",
        "BIGINT, 5.0, 5",
        "BIGINT, 5e3, 5000",
        "BIGINT, 5.5, none",
        "BIGINT, 1e-3, none",
        "BIGINT, 1e999999999, none",
        "BIGINT, 0x10, none",
        "BIGINT, '', none",
        "BIGINT, ' 5', none",
        "BIGINT, ٥, none", // a digit that is not ASCII
        "INT, 2147483648, none",
        "INT, 2147483647, 2147483647",
        "SMALLINT, 32768, none",
        "SMALLINT, -32768, -32768",
        "TINYINT, 128, none",
        "TINYINT, 127, 127",
        "DOUBLE, 1.5, 1.5",
        "DOUBLE, 1e400, none",
        "DOUBLE, 1e-400, none", // as a double it would be zero
        "DOUBLE, 0e-400, 0.0",
        "DOUBLE, 9007199254740993, none", // 2^53 + 1 is not a double and would lose its last digit
        "DOUBLE, 9007199254740992, 9.007199254740992E15",
        "DOUBLE, 1.0f, none",
        "DOUBLE, NaN, NaN",
        "DOUBLE, -Infinity, -Infinity",
        "FLOAT, 16777217, none",
        "FLOAT, 16777216, 1.6777216E7",
        "FLOAT, 1e39, none",
        "'DECIMAL(5,2)', 123.45, 123.45",
        "'DECIMAL(5,2)', 123.450, 123.45",
        "'DECIMAL(5,2)', 123.456, none",
        "'DECIMAL(5,2)', 1234.5, none",
        "'DECIMAL(5,2)', 1e-999999999, none",
        "'DECIMAL(5,2)', 1e999999999, none",
        "'DECIMAL(5,2)', 0e999999999, 0.00",
        "BOOLEAN, true, true",
        "BOOLEAN, false, false",
        "BOOLEAN, TRUE, none",
        "BOOLEAN, 1, none",
        "STRING, anything, anything",
    })
    void textBecomesAValueOrNull(String type, String text, String expected) {
        Object value = value(type, text, false, "UTC");
        assertEquals(expected, value == null ? null : value.toString());
    }

    @ParameterizedTest(name = "{1} as {0} is {2}")
    @CsvSource(nullValues = "none", value = {
        "DOUBLE, 9007199254740993, 9.007199254740992E15",
        "DOUBLE, 1e-400, 0.0",
        "DOUBLE, 1e400, none",
        "BIGINT, 5.5, none",
    })
    void lenientNumbersMayLoseDigits(String type, String text, String expected) {
        Object value = value(type, text, true, "UTC");
        assertEquals(expected, value == null ? null : value.toString());
    }

    @ParameterizedTest(name = "{0} in {1} is {2}")
    @CsvSource(nullValues = "none", value = {
        "1970-01-01T00:00:00Z, UTC, 0",
        "1970-01-01t00:00:00z, UTC, 0", // RFC 3339 allows lower case
        "1970-01-01 00:00:00.000001Z, UTC, 1",
        "1970-01-01T01:00:00+01:00, UTC, 0",
        "1970-01-01T00:00:00, Europe/Berlin, -3600000000",
        "1970-01-01, UTC, 0",
        "1970-01-01T00:00:00Z, Europe/Berlin, 0", // the zone in the text is used
        "1970, UTC, none",
        "12:30, UTC, none",
        "epoch, UTC, none",
        "1970-13-01T00:00:00Z, UTC, none",
        "10000-01-01T00:00:00Z, UTC, none",
        "0, UTC, none",
    })
    void aTimestampUsesItsOwnZoneOrTheZoneOfTheRules(String text, String zone, Long micros) {
        assertEquals(micros, value("TIMESTAMP", text, false, zone));
    }

    @ParameterizedTest(name = "{0} is {1}")
    @CsvSource(nullValues = "none", value = {"1970-01-02, 1", "1969-12-31, -1", "2024-02-29, 19782", "2023-02-29, none",
        "1970-1-2, none", "+1970-01-02, none", "1970-01-02T00:00:00Z, none"})
    void aDateIsAWholeDay(String text, Integer days) {
        assertEquals(days, value("DATE", text, false, "UTC"));
    }

    @Test
    void binaryIsReadFromBase64() {
        assertArrayEquals(new byte[] {1, 2, 3}, (byte[]) value("BINARY", "AQID", false, "UTC"));
        assertNull(value("BINARY", "no base64", false, "UTC"));
    }

    @Test
    void aVeryLongNumberIsNotParsed() {
        assertNull(value("BIGINT", "0".repeat(1_001), false, "UTC"));
        assertEquals(0L, value("BIGINT", "0".repeat(1_000), false, "UTC"));
        assertNull(value("DOUBLE", "1".repeat(10_000_000), false, "UTC"));
    }

    @Test
    void aNestedTypeIsNotReadFromText() {
        TextValue.Rules rules = new TextValue.Rules(ZoneId.of("UTC"), false);
        assertNull(TextValue.as(DataTypes.createArrayType(DataTypes.LongType), rules));
        assertNull(TextValue.as(DataType.fromDDL("a INT"), rules));
    }

    @ParameterizedTest(name = "{0} as {1} is {2}")
    @CsvSource(nullValues = "none", value = {
        "127, TINYINT, 127", "128, TINYINT, none", "32768, SMALLINT, none", "2147483648, INT, none", "2147483648, BIGINT, 2147483648",
        "9007199254740992, DOUBLE, 9.007199254740992E15", "9007199254740993, DOUBLE, none",
        "-9223372036854775808, DOUBLE, none", "16777217, FLOAT, none", "5, STRING, none",
    })
    void aWholeNumberBecomesAValueOrNull(long number, String type, String expected) {
        Object value = TextValue.number(number, DataType.fromDDL(type));
        assertEquals(expected, value == null ? null : value.toString());
    }
}
