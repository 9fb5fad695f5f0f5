package io.lakefeed.protobuf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ProtoTokensTest {
    private static List<String> words(String text) {
        ProtoTokens tokens = new ProtoTokens(text);
        List<String> words = new ArrayList<>();
        while (!tokens.peek().equals(ProtoTokens.END)) {
            words.add(tokens.take());
        }
        return words;
    }

    @ParameterizedTest(name = "{0}")
    @CsvSource(delimiter = '|', value = {
        "a=1; | a = 1 ;",
        "a_b.c1 | a_b . c1",
        "x // rest | x",
        "x /* in between */ y | x y",
        "/* one *//* two */ x | x",
        "map<string,int32> | map < string , int32 >",
        "1e-3 -2 +inf 0x1F 1.5 | 1e-3 - 2 + inf 0x1F 1.5",
    })
    void aTextIsSplitIntoTokens(String text, String words) {
        assertEquals(List.of(words.split(" ")), words(text));
    }

    @Test
    void commentsAndBlanksInsideQuotesAreText() {
        assertEquals(List.of("/* a */ // b", "c"), words("\"/* a */ // b\" c"));
    }

    @Test
    void aByteOrderMarkAndWindowsLineEndsAreSkipped() {
        assertEquals(List.of("a", "b"), words("\uFEFFa\r\n\tb\r\n"));
    }

    @ParameterizedTest(name = "{0} is {1}")
    @CsvSource({"0, 0", "536870911, 536870911", "0x10, 16", "0XfF, 255", "010, 8", "2147483647, 2147483647"})
    void numbersAreReadInEachBase(String text, int number) {
        assertEquals(number, new ProtoTokens(text).integer(Integer.MAX_VALUE));
    }

    @Test
    void numbersAreUnsignedAndLimited() {
        assertEquals(-1L, new ProtoTokens("18446744073709551615").integer(-1L));
        assertEquals(8, new ProtoTokens("8").integer(8));
        SchemaException large = assertThrows(SchemaException.class, () -> new ProtoTokens("9").integer(8));
        assertEquals("line 1: the number 9 is too large: use at most 8", large.getMessage());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "a", "1.5", "99999999999999999999", "2147483648", "0x", "-", "- a", ";", "09", "1e", "1e+", "1a",
        "1.2.3", "0x1G", "'1'"})
    void textsThatAreNoNumbersAreRefused(String text) {
        assertThrows(SchemaException.class, () -> new ProtoTokens(text).integer(Integer.MAX_VALUE));
    }

    @ParameterizedTest
    @ValueSource(strings = {"/* a", "/*/", "/* /* */ */", "\u00e9", "a\0", "// \0", "/* \0 */", "\u007f", "a \uFEFF", "'\\q'", "'\\u12'", "'\\x'",
        "'\\U00110000'", "'a\0'"})
    void textsThatProtocRefusesAreRefused(String text) {
        SchemaException wrong = assertThrows(SchemaException.class, () -> words(text));
        assertTrue(wrong.getMessage().startsWith("line 1: "), wrong.getMessage());
    }

    @ParameterizedTest
    @ValueSource(strings = {"'\\n\\x1\\X1f\\07\\?\\''", "'\\u00e9\\U0010FFFF'", "'\u00e9'"})
    void escapesAreKeptAsWritten(String text) {
        assertEquals(List.of(text.substring(1, text.length() - 1)), words(text));
    }

    @ParameterizedTest(name = "{0} is {1}")
    @CsvSource({"a, a", "a.b.C, a.b.C", ".a.b, .a.b", "a . b, a.b"})
    void pathsAreRead(String text, String path) {
        assertEquals(path, new ProtoTokens(text).path());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "1a", "a.", "..a", "'a'"})
    void textsThatAreNoPathsAreRefused(String text) {
        assertThrows(SchemaException.class, () -> new ProtoTokens(text).path());
    }

    @Test
    void adjacentTextsAreJoined() {
        assertEquals("ab", new ProtoTokens("\"a\" 'b'").text());
        assertThrows(SchemaException.class, () -> new ProtoTokens("a").text());
    }

    @ParameterizedTest
    @ValueSource(strings = {"\"a", "'a\"", "\"a\n\"", "\"a\\\""})
    void aTextWithoutAnEndIsRefused(String text) {
        assertThrows(SchemaException.class, () -> words(text));
    }

    @Test
    void aTextInQuotesIsNotAKeyword() {
        assertFalse(new ProtoTokens("\"message\"").taken("message"));
        assertTrue(new ProtoTokens("message").taken("message"));
    }

    @Test
    void anErrorNamesTheLine() {
        ProtoTokens tokens = new ProtoTokens("a\n/* 1\n2 */\n// 3\n  b");
        tokens.take();
        SchemaException wrong = assertThrows(SchemaException.class, () -> tokens.expect("c"));
        assertTrue(wrong.getMessage().contains("line 5: "), wrong.getMessage());
        assertTrue(wrong.getMessage().contains("'b'"), wrong.getMessage());
    }
}
