package io.lakefeed.protobuf;

import java.util.ArrayList;
import java.util.List;

/** The words of a {@code .proto} text, one after the other, without its comments. */
final class ProtoTokens {
    /** Said where the text is at its end. */
    static final String END = "";

    private record Token(String text, int line, boolean quoted) {}

    private final String source;
    private final List<Token> tokens = new ArrayList<>();
    private int scanned;
    private int line = 1;
    private int next;

    ProtoTokens(String source) {
        this.source = source;
        while (blank()) {
            scan();
        }
        tokens.add(new Token(END, line, false));
    }

    /** The next word, which stays the next one. */
    String peek() {
        return tokens.get(next).text;
    }

    /** The word after the next one. */
    String peekSecond() {
        return tokens.get(Math.min(next + 1, tokens.size() - 1)).text;
    }

    /** The next word; text in quotes without them. */
    String take() {
        Token token = tokens.get(next);
        if (next < tokens.size() - 1) {
            next++;
        }
        return token.text;
    }

    /** Whether the next word is this one; if so it is taken. */
    boolean taken(String word) {
        boolean found = !tokens.get(next).quoted && peek().equals(word);
        if (found) {
            take();
        }
        return found;
    }

    /** Takes the word that has to be next. */
    void expect(String word) {
        if (!taken(word)) {
            throw wrong("'" + word + "'");
        }
    }

    /** Takes a name. */
    String name() {
        String name = peek();
        if (tokens.get(next).quoted || name.isEmpty() || !Character.isJavaIdentifierStart(name.charAt(0))) {
            throw wrong("a name");
        }
        return take();
    }

    /** Takes names with dots between them, and perhaps before the first. */
    String path() {
        StringBuilder path = new StringBuilder();
        if (taken(".")) {
            path.append('.');
        }
        path.append(name());
        while (taken(".")) {
            path.append('.').append(name());
        }
        return path.toString();
    }

    /** Takes text in quotes; pieces that follow each other are one. */
    String text() {
        if (!tokens.get(next).quoted) {
            throw wrong("text in quotes");
        }
        StringBuilder text = new StringBuilder();
        while (tokens.get(next).quoted) {
            text.append(take());
        }
        return text.toString();
    }

    /** Takes a whole number. */
    int number() {
        boolean negative = taken("-");
        try {
            long number = Long.decode(peek());
            if (number <= 0xFFFFFFFFL) {
                take();
                return (int) (negative ? -number : number);
            }
        } catch (NumberFormatException none) {
            // Told below.
        }
        throw wrong("a number");
    }

    /** The error for a next word that should be {@code wanted}. */
    SchemaException wrong(String wanted) {
        String found = peek().equals(END) ? "the end" : "'" + peek() + "'";
        return new SchemaException("line " + tokens.get(next).line + ": " + wanted + " wanted, found " + found);
    }

    /** Passes blanks and comments; false at the end. */
    private boolean blank() {
        while (scanned < source.length()) {
            char c = source.charAt(scanned);
            if (c == '\n') {
                line++;
                scanned++;
            } else if (Character.isWhitespace(c) || c == '\uFEFF') {
                scanned++;
            } else if (source.startsWith("//", scanned)) {
                int end = source.indexOf('\n', scanned);
                scanned = end < 0 ? source.length() : end;
            } else if (source.startsWith("/*", scanned)) {
                int end = source.indexOf("*/", scanned + 2);
                int stop = end < 0 ? source.length() : end + 2;
                line += (int) source.substring(scanned, stop).chars().filter(each -> each == '\n').count();
                scanned = stop;
            } else {
                return true;
            }
        }
        return false;
    }

    private void scan() {
        int from = scanned;
        char c = source.charAt(scanned);
        if (c == '"' || c == '\'') {
            tokens.add(new Token(quoted(c), line, true));
            return;
        }
        if (Character.isJavaIdentifierStart(c)) {
            while (scanned < source.length() && Character.isJavaIdentifierPart(source.charAt(scanned))) {
                scanned++;
            }
        } else if (Character.isDigit(c)) {
            while (scanned < source.length() && inNumber(source.charAt(scanned), source.charAt(scanned - (scanned > from ? 1 : 0)))) {
                scanned++;
            }
        } else {
            scanned++;
        }
        tokens.add(new Token(source.substring(from, scanned), line, false));
    }

    private static boolean inNumber(char c, char before) {
        return Character.isLetterOrDigit(c) || c == '.' || ((c == '-' || c == '+') && (before == 'e' || before == 'E'));
    }

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
            if (c == '\\' && scanned + 1 < source.length()) {
                // Escapes stand in defaults and options only, which the layout does not need.
                text.append(c);
                c = source.charAt(++scanned);
            }
            text.append(c);
        }
        throw new SchemaException("line " + line + ": text in quotes does not end");
    }
}
