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
    void areSplit(String text, String words) {
        assertEquals(List.of(words.split(" ")), words(text));
    }

    @Test
    void keepCommentsAndBlanksInsideText() {
        assertEquals(List.of("/* a */ // b", "c"), words("\"/* a */ // b\" c"));
    }

    @Test
    void passOverAByteOrderMarkAndWindowsLineEnds() {
        assertEquals(List.of("a", "b"), words("\uFEFFa\r\n\tb\r\n"));
    }

    @ParameterizedTest(name = "{0} is {1}")
    @CsvSource({"0, 0", "536870911, 536870911", "-1, -1", "0x10, 16", "010, 8", "-0x1, -1", "2147483647, 2147483647",
        "-2147483648, -2147483648"})
    void areNumbers(String text, int number) {
        assertEquals(number, new ProtoTokens(text).number());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "a", "1.5", "99999999999999", "0x", "-", "- a", ";"})
    void areNoNumbers(String text) {
        assertThrows(SchemaException.class, () -> new ProtoTokens(text).number());
    }

    @ParameterizedTest(name = "{0} is {1}")
    @CsvSource({"a, a", "a.b.C, a.b.C", ".a.b, .a.b", "a . b, a.b"})
    void arePaths(String text, String path) {
        assertEquals(path, new ProtoTokens(text).path());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "1a", "a.", "..a", "'a'"})
    void areNoPaths(String text) {
        assertThrows(SchemaException.class, () -> new ProtoTokens(text).path());
    }

    @Test
    void joinTextsThatFollowEachOther() {
        assertEquals("ab", new ProtoTokens("\"a\" 'b'").text());
        assertThrows(SchemaException.class, () -> new ProtoTokens("a").text());
    }

    @ParameterizedTest
    @ValueSource(strings = {"\"a", "'a\"", "\"a\n\"", "\"a\\\""})
    void refuseATextThatDoesNotEnd(String text) {
        assertThrows(SchemaException.class, () -> words(text));
    }

    @Test
    void tellTextFromWords() {
        assertFalse(new ProtoTokens("\"message\"").taken("message"));
        assertTrue(new ProtoTokens("message").taken("message"));
    }

    @Test
    void nameTheLineOfAMistake() {
        ProtoTokens tokens = new ProtoTokens("a\n/* 1\n2 */\n// 3\n  b");
        tokens.take();
        SchemaException wrong = assertThrows(SchemaException.class, () -> tokens.expect("c"));
        assertTrue(wrong.getMessage().contains("line 5: "), wrong.getMessage());
        assertTrue(wrong.getMessage().contains("'b'"), wrong.getMessage());
    }
}
