package io.lakefeed.protobuf;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakefeed.encode.WireOutput;
import java.util.HexFormat;
import java.util.Random;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class WireTest {
    private static WireInput input(String hex) {
        return new WireInput().over(HexFormat.of().parseHex(hex.replace(" ", "")), 0);
    }

    private static String hex(WireOutput output) {
        return HexFormat.of().formatHex(output.toBytes());
    }

    /** The values include the examples of Protobuf's documentation. */
    @ParameterizedTest(name = "{0} is {1}")
    @CsvSource({
        "0, 00",
        "1, 01",
        "127, 7f",
        "128, 8001",
        "150, 9601",
        "300, ac02",
        "2147483647, ffffffff07",
        "4294967295, ffffffff0f",
        "9223372036854775807, ffffffffffffffff7f",
        "-1, ffffffffffffffffff01",
        "-9223372036854775808, 80808080808080808001",
    })
    void varintsAreWrittenAndRead(long value, String hex) {
        WireOutput output = new WireOutput();
        output.varint(value);
        assertEquals(hex, hex(output));
        WireInput input = input(hex);
        assertEquals(value, input.varint());
        assertTrue(input.atEnd());
    }

    @ParameterizedTest(name = "{0} is {1}")
    @CsvSource({"0, 00", "-1, 01", "1, 02", "-2, 03", "2147483647, feffffff0f", "-2147483648, ffffffff0f",
        "9223372036854775807, feffffffffffffffff01", "-9223372036854775808, ffffffffffffffffff01"})
    void zigzagVarintsAreWrittenAndRead(long value, String hex) {
        WireOutput output = new WireOutput();
        output.zigzag(value);
        assertEquals(hex, hex(output));
        assertEquals(value, input(hex).zigzag());
    }

    @Test
    void fixedNumbersBeginWithTheirLowestByte() {
        WireOutput output = new WireOutput();
        output.fixed32(0x01020304);
        output.fixed64(-2);
        assertEquals("04030201" + "feffffffffffffff", hex(output));
        WireInput input = input(hex(output));
        assertEquals(0x01020304, input.fixed32());
        assertEquals(-2, input.fixed64());
    }

    @Test
    void writtenValuesAreReadBack() {
        Random random = new Random(7);
        WireOutput output = new WireOutput();
        for (int round = 0; round < 200; round++) {
            long value = random.nextLong() >> random.nextInt(64);
            byte[] content = new byte[random.nextInt(300)];
            random.nextBytes(content);
            WireOutput inner = new WireOutput();
            inner.raw(content);
            output.reset();
            output.tag(1 + random.nextInt(536_870_911), WireInput.VARINT);
            output.varint(value);
            output.zigzag(value);
            output.lengthAnd(inner);
            output.fixed64(value);
            WireInput input = new WireInput().over(output.toBytes(), 0);
            input.tag();
            assertEquals(value, input.varint());
            assertEquals(value, input.zigzag());
            int length = input.length();
            assertEquals(content.length, length);
            input.take(length);
            assertEquals(value, input.fixed64());
            assertTrue(input.atEnd());
        }
    }

    @Nested
    class Truncated {
        @ParameterizedTest
        @ValueSource(strings = {"", "80", "ffffffffffffffffff"})
        void truncatedVarintsAreRefused(String hex) {
            assertThrows(Malformed.class, () -> input(hex).varint());
        }

        @Test
        void truncatedFixedNumbersAreRefused() {
            assertThrows(Malformed.class, () -> input("010203").fixed32());
            assertThrows(Malformed.class, () -> input("01020304050607").fixed64());
        }

        @ParameterizedTest
        @ValueSource(strings = {"01", "05aabbccdd", "ffffffff0f", "ffffffffffffffffff01"})
        void truncatedLengthsAreRefused(String hex) {
            assertThrows(Malformed.class, () -> input(hex).length());
        }
    }

    @Test
    void numbersOfMoreThan10BytesAreRefused() {
        assertThrows(Malformed.class, () -> input("8080808080808080808001").varint());
    }

    @ParameterizedTest
    @ValueSource(strings = {"00", "07", "80808080 8001", "ffffffffffffffffff01"})
    void tagsWithoutAValidFieldNumberAreRefused(String hex) {
        assertThrows(Malformed.class, () -> input(hex).tag());
    }

    @Nested
    class Skipping {
        @ParameterizedTest(name = "{0}")
        @CsvSource({
            "08 9601 00, 3", // varint
            "09 0102030405060708 00, 9", // fixed64
            "0a 03 aabbcc 00, 5", // length
            "0d 01020304 00, 5", // fixed32
            "0b 08 01 0c 00, 4", // group
            "0b 13 14 0c 00, 4", // group in a group
            "0b 0c 00, 2", // empty group
        })
        void skipEndsAfterTheValue(String hex, int position) {
            WireInput input = input(hex);
            input.skip(input.tag(), 0);
            assertEquals(position, input.position());
            assertFalse(input.atEnd());
        }

        @ParameterizedTest
        @ValueSource(strings = {"0c", "0e", "0f", "0b 08 01", "0b 14", "0b 0b 0c", "0a 05 aa", "0d 0102"})
        void skippingAValueWithoutAnEndIsRefused(String hex) {
            WireInput input = input(hex);
            assertThrows(Malformed.class, () -> input.skip(input.tag(), 0));
        }

        @Test
        void theDepthOfSkippedGroupsIsLimited() {
            WireInput fits = input("0b".repeat(100) + "0c".repeat(100));
            fits.skip(fits.tag(), 0);
            assertTrue(fits.atEnd());
            WireInput deep = input("0b".repeat(101) + "0c".repeat(101));
            assertThrows(Malformed.class, () -> deep.skip(deep.tag(), 0));
        }
    }

    @Test
    void aLimitEndsAnInnerMessage() {
        WireInput input = input("02 0801 1003");
        int before = input.limit();
        input.tag();
        input.varint();
        assertTrue(input.atEnd());
        input.unlimit(before);
        assertFalse(input.atEnd());
        assertEquals(2 << 3, input.tag());
        assertEquals(3, input.varint());
    }

    @Test
    void aLengthBeyondTheLimitIsRefused() {
        WireInput input = input("02 0a05 0000000000");
        input.limit();
        input.tag();
        assertThrows(Malformed.class, input::length);
    }

    @Test
    void theOutputGrowsAsNeeded() {
        byte[] content = new byte[10_000];
        new Random(1).nextBytes(content);
        WireOutput output = new WireOutput();
        output.raw(content);
        assertArrayEquals(content, output.toBytes());
    }
}
