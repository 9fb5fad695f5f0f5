package io.lakefeed.protobuf;

import static io.lakefeed.protobuf.ProtoTokens.wrong;

/** Reads the names and numbers that a {@code .proto} text reserves or sets aside for extensions. */
record ProtoReserved(ProtoTokens tokens, ProtoOptions options) {
    void reserved(ProtoScope scope, int most) {
        tokens.expect("reserved");
        if (!tokens.atText() && !tokens.atName()) {
            ranges(scope, most, "reserved");
        } else {
            do {
                int line = tokens.line();
                if (tokens.atText() == options.ofEdition()) {
                    throw tokens.expected(tokens.atText() ? "a name without quotes" : "a name in quotes");
                }
                scope.reserve(tokens.atText() ? tokens.text() : tokens.name(), line);
            } while (tokens.taken(","));
        }
        tokens.expect(";");
    }

    void extensions(ProtoScope scope) {
        tokens.expect("extensions");
        ranges(scope, ProtoScope.LARGEST_NUMBER, "for extensions");
        options.list();
        tokens.expect(";");
    }

    private void ranges(ProtoScope scope, int most, String purpose) {
        boolean ofEnum = most == Integer.MAX_VALUE;
        do {
            int line = tokens.line();
            int start = rangeEnd(ofEnum);
            int end = !tokens.taken("to") ? start : tokens.taken("max") ? most : rangeEnd(ofEnum);
            if (start < 1 && !ofEnum) {
                throw wrong(line, "the number " + start + " cannot be " + purpose + ": use 1 or more");
            }
            scope.reserve(start, end, purpose, line);
        } while (tokens.taken(","));
    }

    private int rangeEnd(boolean signed) {
        return (int) (signed && tokens.taken("-") ? -tokens.integer(1L << 31) : tokens.integer(Integer.MAX_VALUE));
    }
}
