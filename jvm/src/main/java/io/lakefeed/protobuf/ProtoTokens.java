package io.lakefeed.protobuf;

import java.util.ArrayList;
import java.util.List;

/**
 * Splits a {@code .proto} text into tokens, without its comments; refuses the characters that protoc refuses.
 *
 * @see <a href="https://protobuf.dev/reference/protobuf/edition-2023-spec/#lexical_elements">lexical elements</a>
 */
final class ProtoTokens {
    /** The text of the token behind the last one. */
    static final String END = "";

    private enum Kind {
        NAME,
        INTEGER,
        FLOAT,
        TEXT,
        SYMBOL
    }

    private record Token(Kind kind, String text, int line) {}

    private final String source;
    private final List<Token> tokens = new ArrayList<>();
    private int scanned;
    private int line = 1;
    private int next;

    ProtoTokens(String source) {
        this.source = source;
        int end = source.indexOf('\0');
        if (end >= 0) {
            // protoc takes it for the end, also inside a comment.
            line += (int) source.chars().limit(end).filter(c -> c == '\n').count();
            throw wrong(line, "the text contains the character U+0000: remove it");
        }
        if (source.startsWith("\uFEFF")) {
            scanned++;
        }
        while (skipBlanks()) {
            scan();
        }
        tokens.add(new Token(Kind.SYMBOL, END, line));
    }

    /** The next token's text, without taking it. */
    String peek() {
        return tokens.get(next).text;
    }

    /** The number of the next token, to come {@link #back} to. */
    int position() {
        return next;
    }

    /** Makes the token at a position the next one again. */
    void back(int position) {
        next = position;
    }

    /** The line of the next token. */
    int line() {
        return tokens.get(next).line;
    }

    boolean atEnd() {
        return at(END);
    }

    /** Returns whether the next token is this name or sign. */
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

    /** Takes the next token; text in quotes without them. */
    String take() {
        String text = peek();
        if (next < tokens.size() - 1) {
            next++;
        }
        return text;
    }

    /** Takes the next token if it is this name or sign; returns whether it is. */
    boolean taken(String word) {
        boolean found = at(word);
        if (found) {
            take();
        }
        return found;
    }

    /** Takes the name or sign that has to be next. */
    void expect(String word) {
        if (!taken(word)) {
            throw expected("'" + word + "'");
        }
    }

    /** Takes a name. */
    String name() {
        if (!atName()) {
            throw expected("a name");
        }
        return take();
    }

    /** Takes names with dots between them, and perhaps before the first. */
    String path() {
        return taken(".") ? "." + names() : names();
    }

    /** Takes the name of a message. */
    void messageType() {
        if (ProtoType.scalar(peek()) != null) {
            throw expected("a message");
        }
        path();
    }

    /** Takes names with dots between them. */
    String names() {
        StringBuilder path = new StringBuilder(name());
        while (taken(".")) {
            path.append('.').append(name());
        }
        return path.toString();
    }

    /** Takes text in quotes; pieces that follow each other are one. */
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

    /** Takes a whole number without a sign that is at most {@code most}, which may be an unsigned one. */
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

    /** The error for a next token that should be {@code something}. */
    SchemaException expected(String something) {
        return wrong(line(), "expected " + something + ", found " + (atEnd() ? "the end" : "'" + peek() + "'"));
    }

    /** An error on a line, with what to do. */
    static SchemaException wrong(int line, String text) {
        return new SchemaException("line " + line + ": " + text);
    }

    /** Skips blanks and comments; returns false at the end. */
    private boolean skipBlanks() {
        while (scanned < source.length()) {
            char c = source.charAt(scanned);
            if (c == '\n') {
                line++;
                scanned++;
            } else if (" \t\r\u000B\f".indexOf(c) >= 0) {
                scanned++;
            } else if (source.startsWith("//", scanned)) {
                int end = source.indexOf('\n', scanned);
                scanned = end < 0 ? source.length() : end;
            } else if (source.startsWith("/*", scanned)) {
                skipComment();
            } else {
                return true;
            }
        }
        return false;
    }

    private void skipComment() {
        int end = source.indexOf("*/", scanned + 2);
        if (end < 0) {
            throw wrong(line, "the comment does not end: add */");
        }
        int inner = source.indexOf("/*", scanned + 2);
        if (inner >= 0 && inner < end) {
            throw wrong(line, "a comment stands inside a comment: remove the inner /*");
        }
        line += (int) source.substring(scanned, end).chars().filter(c -> c == '\n').count();
        scanned = end + 2;
    }

    private void scan() {
        int from = scanned;
        char c = source.charAt(scanned);
        if (c == '"' || c == '\'') {
            tokens.add(new Token(Kind.TEXT, quoted(c), line));
        } else if (isLetter(c)) {
            while (isLetter(current()) || isDigit(current())) {
                scanned++;
            }
            add(Kind.NAME, from);
        } else if (isDigit(c) || c == '.' && scanned + 1 < source.length() && isDigit(source.charAt(scanned + 1))) {
            add(number() ? Kind.FLOAT : Kind.INTEGER, from);
        } else if (c < ' ' || c > '~') {
            throw wrong(line, String.format("the character U+%04X stands outside of a comment: remove it", (int) c));
        } else {
            scanned++;
            add(Kind.SYMBOL, from);
        }
    }

    private void add(Kind kind, int from) {
        tokens.add(new Token(kind, source.substring(from, scanned), line));
    }

    /** Scans a number; returns whether it has a fraction or an exponent. */
    private boolean number() {
        int from = scanned;
        boolean whole = true;
        if (current() == '0' && scanned + 1 < source.length() && "xX".indexOf(source.charAt(scanned + 1)) >= 0) {
            scanned += 2;
            if (!isHex(current())) {
                throw malformed(from);
            }
            while (isHex(current())) {
                scanned++;
            }
        } else {
            boolean octal = current() == '0';
            skipDigits();
            if (current() == '.') {
                whole = false;
                scanned++;
                skipDigits();
            }
            if (current() == 'e' || current() == 'E') {
                whole = false;
                scanned++;
                if (current() == '-' || current() == '+') {
                    scanned++;
                }
                if (!isDigit(current())) {
                    throw malformed(from);
                }
                skipDigits();
            }
            if (whole && octal && source.substring(from, scanned).matches(".*[89].*")) {
                throw wrong(line, "the number " + source.substring(from, scanned)
                        + " starts with 0 and is not octal: remove the 0");
            }
        }
        if (isLetter(current()) || current() == '.') {
            throw malformed(from);
        }
        return !whole;
    }

    private SchemaException malformed(int from) {
        while (isLetter(current()) || isDigit(current()) || current() == '.') {
            scanned++;
        }
        return wrong(line, "'" + source.substring(from, scanned) + "' is no number:"
                + " correct it, or put a blank into it");
    }

    private void skipDigits() {
        while (isDigit(current())) {
            scanned++;
        }
    }

    /** The character that is scanned next; at the end one that is in no token. */
    private char current() {
        return scanned < source.length() ? source.charAt(scanned) : '\0';
    }

    private static boolean isLetter(char c) {
        return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_';
    }

    private static boolean isDigit(char c) {
        return c >= '0' && c <= '9';
    }

    private static boolean isHex(char c) {
        return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F';
    }

    /** Scans text in quotes; escapes stay as they are, since they stand in defaults and options only. */
    private String quoted(char quote) {
        StringBuilder text = new StringBuilder();
        for (scanned++; scanned < source.length(); scanned++) {
            char c = source.charAt(scanned);
            if (c == quote) {
                scanned++;
                return text.toString();
            }
            if (c == '\n') {
                break;
            }
            text.append(c);
            if (c == '\\') {
                scanned++;
                requireEscape();
                text.append(current());
            }
        }
        throw wrong(line, "text in quotes does not end: add " + quote);
    }

    private void requireEscape() {
        char c = current();
        int digits = c == 'u' ? 4 : c == 'U' ? 8 : c == 'x' || c == 'X' ? 1 : 0;
        boolean known = "abfnrtv\\?'\"xXuU".indexOf(c) >= 0 || c >= '0' && c <= '7';
        for (int at = scanned + 1; at <= scanned + digits; at++) {
            known &= at < source.length() && isHex(source.charAt(at));
        }
        if (known && c == 'U') {
            known = Long.parseLong(source, scanned + 1, scanned + 9, 16) <= Character.MAX_CODE_POINT;
        }
        if (!known || c == '\0') {
            throw wrong(line, "the escape \\" + c + " in quotes is unknown: write \\\\ for a backslash");
        }
    }
}
