package io.lakefeed.protobuf;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Splits a {@code .proto} text into tokens without comments; refuses characters that protoc refuses.
 *
 * @see <a href="https://protobuf.dev/reference/protobuf/edition-2023-spec/#lexical_elements">lexical elements</a>
 */
final class ProtoTokens {
    /** The text of the token that marks the end of the source. */
    static final String END = "";

    private enum Kind {
        NAME,
        INTEGER,
        FLOAT,
        TEXT,
        SYMBOL
    }

    private record Token(Kind kind, String text, int line) {}

    private static final String HEX = "[0-9a-fA-F]";
    private static final String ESCAPE =
            "\\\\(?:[abfnrtv\\\\?'\"0-7]|[xX]HEX|uHEX{4}|U(?:0010|000HEX)HEX{4})".replace("HEX", HEX);
    /** Matches text up to its closing quote. Escapes are not decoded: only defaults and options contain them. */
    private static final Pattern OPEN_TEXT =
            Pattern.compile("(?:\"(?:[^\"\\\\\n]|ESCAPE)*+|'(?:[^'\\\\\n]|ESCAPE)*+)".replace("ESCAPE", ESCAPE));
    private static final Pattern TOKEN = Pattern.compile(String.join(
            "|",
            "[ \t\r\n\u000B\f]++|//[^\n]*+|(?<comment>/\\*(?s:.*?)\\*/)",
            "(?<name>[A-Za-z_]\\w*+)",
            "(?<integer>0[xX]" + HEX + "++|0[0-7]*+|[1-9]\\d*+)(?![\\w.])",
            "(?<float>(?:\\d++\\.\\d*+|\\.\\d++)(?:[eE][+-]?\\d++)?|\\d++[eE][+-]?\\d++)(?![\\w.])",
            "(?<text>" + OPEN_TEXT + "[\"'])",
            "(?<symbol>\\.(?!\\d)|/(?!\\*)|[!-~&&[^\\w\"'./]])"));

    private final List<Token> tokens = new ArrayList<>();
    private int next;

    ProtoTokens(String source) {
        int line = 1;
        int end = source.indexOf('\0');
        if (end >= 0) {
            // protoc ends the text at this character, even inside a comment.
            line += (int) source.chars().limit(end).filter(c -> c == '\n').count();
            throw wrong(line, "the text contains the character U+0000: remove it");
        }
        Matcher found = TOKEN.matcher(source);
        for (int at = source.startsWith("\uFEFF") ? 1 : 0; at < source.length(); at = found.end()) {
            if (!found.region(at, source.length()).lookingAt()) {
                throw unreadable(source, at, line);
            }
            if (found.group("comment") != null && found.group().indexOf("/*", 2) > 0) {
                throw wrong(line, "a comment stands inside a comment: remove the inner /*");
            }
            for (Kind kind : Kind.values()) {
                String text = found.group(kind.name().toLowerCase(Locale.ROOT));
                if (text != null) {
                    tokens.add(new Token(kind, kind == Kind.TEXT ? text.substring(1, text.length() - 1) : text, line));
                }
            }
            line += (int) found.group().chars().filter(c -> c == '\n').count();
        }
        tokens.add(new Token(Kind.SYMBOL, END, line));
    }

    private static SchemaException unreadable(String source, int at, int line) {
        char c = source.charAt(at);
        if (c == '"' || c == '\'') {
            Matcher open = OPEN_TEXT.matcher(source).region(at, source.length());
            int stop = open.lookingAt() ? open.end() : at;
            return wrong(line, source.startsWith("\\", stop) && stop + 1 < source.length()
                    ? "the escape \\" + source.charAt(stop + 1) + " in quotes is unknown: write \\\\ for a backslash"
                    : "text in quotes does not end: add " + c);
        }
        if (c == '/') {
            return wrong(line, "the comment does not end: add */");
        }
        Matcher word = Pattern.compile("[\\w.]+").matcher(source).region(at, source.length());
        if (!word.lookingAt()) {
            return wrong(line, String.format("the character U+%04X stands outside of a comment: remove it", (int) c));
        }
        return wrong(line, word.group().matches("0\\d+")
                ? "the number " + word.group() + " starts with 0 and is not octal: remove the 0"
                : "'" + word.group() + "' is not a number: correct it, or put a blank into it");
    }

    String peek() {
        return tokens.get(next).text;
    }

    int position() {
        return next;
    }

    void back(int position) {
        next = position;
    }

    int line() {
        return tokens.get(next).line;
    }

    boolean atEnd() {
        return at(END);
    }

    boolean at(String word) {
        return tokens.get(next).kind != Kind.TEXT && peek().equals(word);
    }

    /** Returns whether the token after the next one is this name or sign. */
    boolean secondIs(String word) {
        Token second = tokens.get(Math.min(next + 1, tokens.size() - 1));
        return second.kind != Kind.TEXT && second.text.equals(word);
    }

    boolean atText() {
        return tokens.get(next).kind == Kind.TEXT;
    }

    boolean atInteger() {
        return tokens.get(next).kind == Kind.INTEGER;
    }

    boolean atFloat() {
        return tokens.get(next).kind == Kind.FLOAT;
    }

    boolean atName() {
        return tokens.get(next).kind == Kind.NAME;
    }

    /** Returns the current token, a text without its quotes, and moves to the next one. */
    String take() {
        String text = peek();
        if (next < tokens.size() - 1) {
            next++;
        }
        return text;
    }

    boolean taken(String word) {
        boolean found = at(word);
        if (found) {
            take();
        }
        return found;
    }

    void expect(String word) {
        if (!taken(word)) {
            throw expected("'" + word + "'");
        }
    }

    String name() {
        if (!atName()) {
            throw expected("a name");
        }
        return take();
    }

    /** Reads names with dots between them, and optionally a dot before the first name. */
    String path() {
        return taken(".") ? "." + names() : names();
    }

    void messageType() {
        if (ProtoType.scalar(peek()) != null) {
            throw expected("a message");
        }
        path();
    }

    String names() {
        StringBuilder path = new StringBuilder(name());
        while (taken(".")) {
            path.append('.').append(name());
        }
        return path.toString();
    }

    String text() {
        if (!atText()) {
            throw expected("text in quotes");
        }
        StringBuilder text = new StringBuilder();
        while (atText()) {
            text.append(take());
        }
        return text.toString();
    }

    /** Reads a whole number without a sign, up to {@code most}; both numbers are unsigned. */
    long integer(long most) {
        if (!atInteger()) {
            throw expected("a number");
        }
        long number;
        try {
            String text = peek();
            number = text.startsWith("0x") || text.startsWith("0X")
                    ? Long.parseUnsignedLong(text.substring(2), 16)
                    : Long.parseUnsignedLong(text, text.startsWith("0") ? 8 : 10);
        } catch (NumberFormatException tooLong) {
            throw tooLarge(most);
        }
        if (Long.compareUnsigned(number, most) > 0) {
            throw tooLarge(most);
        }
        take();
        return number;
    }

    private SchemaException tooLarge(long most) {
        return wrong(line(), "the number " + peek() + " is too large: use at most " + Long.toUnsignedString(most));
    }

    /** Returns the error for the current token, where {@code something} was expected. */
    SchemaException expected(String something) {
        return wrong(line(), "expected " + something + ", found " + (atEnd() ? "the end" : "'" + peek() + "'"));
    }

    static SchemaException wrong(int line, String text) {
        return new SchemaException("line " + line + ": " + text);
    }
}
