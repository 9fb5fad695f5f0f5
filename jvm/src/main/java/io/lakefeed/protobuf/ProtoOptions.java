package io.lakefeed.protobuf;

import static io.lakefeed.protobuf.ProtoTokens.wrong;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Reads the features in the options of a {@code .proto} text; skips other options, and services.
 *
 * <p>Of the skipped options only the grammar is checked, because they do not change how a record is read.
 */
final class ProtoOptions {
    private static final String FEATURES = "features.";

    private final ProtoTokens tokens;
    private boolean edition;

    /**
     * One option.
     *
     * @param value the token after {@code =}; empty if it is followed by a block in braces
     */
    record Option(String name, String value, int line) {}

    ProtoOptions(ProtoTokens tokens) {
        this.tokens = tokens;
    }

    void allowFeatures() {
        edition = true;
    }

    boolean ofEdition() {
        return edition;
    }

    /** Reads {@code name = value}; for a block of features returns several options. */
    List<Option> option() {
        int line = tokens.line();
        String name = name();
        tokens.expect("=");
        if (!name.equals("features") && !name.startsWith(FEATURES)) {
            return List.of(new Option(name, value(), line));
        }
        if (!edition) {
            throw wrong(line, "features are for editions: remove the option, or write edition = \"2023\"");
        }
        if (!name.equals("features") || !tokens.at("{")) {
            return List.of(new Option(name, value(), line));
        }
        tokens.take();
        List<Option> found = new ArrayList<>();
        while (!tokens.taken("}")) {
            String feature = tokens.at("[") ? extension() : tokens.name();
            if (!tokens.taken(":") && !tokens.at("{")) {
                throw tokens.expected("':'");
            }
            found.add(new Option(FEATURES + feature, value(), tokens.line()));
            if (!tokens.taken(",")) {
                tokens.taken(";");
            }
        }
        return found;
    }

    List<Option> statement() {
        tokens.expect("option");
        List<Option> found = option();
        tokens.expect(";");
        return found;
    }

    List<Option> list() {
        List<Option> found = new ArrayList<>();
        if (tokens.taken("[")) {
            do {
                found.addAll(option());
            } while (tokens.taken(","));
            tokens.expect("]");
        }
        return found;
    }

    /** Returns the features of a block. Reads ahead, because the block's options apply to earlier fields, too. */
    Features blockFeatures(Features inherited, Features.Place place) {
        if (!edition) {
            return inherited;
        }
        int begin = tokens.position();
        List<Option> found = new ArrayList<>();
        boolean statement = true;
        for (int open = 0; open >= 0 && !tokens.atEnd(); ) {
            if (statement && open == 0 && tokens.at("option")) {
                found.addAll(statement());
                continue;
            }
            open += tokens.at("{") ? 1 : tokens.at("}") ? -1 : 0;
            statement = tokens.at(";") || tokens.at("}");
            tokens.take();
        }
        tokens.back(begin);
        return applied(inherited, found, place);
    }

    /** Returns the features {@code before}, changed by the options of a block or field. */
    static Features applied(Features before, List<Option> options, Features.Place place) {
        Features features = before;
        Set<String> names = new HashSet<>();
        for (Option each : options) {
            // Ignore extensions such as features.(pb.cpp): they are features of the code generated for a language.
            if ((each.name + ".").startsWith(FEATURES) && !each.name.startsWith(FEATURES + "(")) {
                String feature = each.name.substring(Math.min(FEATURES.length(), each.name.length()));
                if (!Features.isKnown(feature, each.value, place)) {
                    throw wrong(each.line, "the feature " + feature + " = " + each.value
                            + " cannot stand here: see protobuf.dev/editions/features");
                }
                if (!names.add(feature)) {
                    throw wrong(each.line, "the feature " + feature + " is set twice: remove one of the two");
                }
                features = features.with(feature, each.value);
            }
        }
        return features;
    }

    private String extension() {
        tokens.expect("[");
        String name = "(" + tokens.names() + ")";
        tokens.expect("]");
        return name;
    }

    private String name() {
        StringBuilder name = new StringBuilder();
        do {
            name.append(name.isEmpty() ? "" : ".");
            if (tokens.taken("(")) {
                name.append('(').append(tokens.path()).append(')');
                tokens.expect(")");
            } else {
                name.append(tokens.name());
            }
        } while (tokens.taken("."));
        return name.toString();
    }

    private String value() {
        if (tokens.at("{")) {
            block();
            return "";
        }
        if (tokens.atText()) {
            return tokens.text();
        }
        boolean negative = tokens.taken("-");
        if (tokens.atInteger()) {
            long most = negative ? Long.MIN_VALUE : -1L;
            return (negative ? "-" : "") + Long.toUnsignedString(tokens.integer(most));
        }
        if (tokens.atName() && negative && !List.of("inf", "nan").contains(tokens.peek())) {
            throw tokens.expected("a number");
        }
        if (!tokens.atFloat() && !tokens.atName()) {
            throw tokens.expected("a value");
        }
        return tokens.take();
    }

    /** Skips a block in braces, whose content has a different grammar. */
    private void block() {
        tokens.expect("{");
        for (int open = 1; open > 0; ) {
            if (tokens.taken("{")) {
                open++;
            } else if (tokens.taken("}")) {
                open--;
            } else if (tokens.atEnd()) {
                throw tokens.expected("'}'");
            } else {
                tokens.take();
            }
        }
    }

    /** Reads the value after {@code default =}, which must have the field's type. */
    void defaultOf(String type) {
        switch (type) {
            case "int32", "sint32", "sfixed32" -> whole(Integer.MAX_VALUE, 1L << 31);
            case "int64", "sint64", "sfixed64" -> whole(Long.MAX_VALUE, Long.MIN_VALUE);
            case "uint32", "fixed32" -> tokens.integer((1L << 32) - 1);
            case "uint64", "fixed64" -> tokens.integer(-1L);
            case "bool" -> {
                if (!tokens.taken("true")) {
                    tokens.expect("false");
                }
            }
            case "string", "bytes" -> tokens.text();
            case "float", "double" -> {
                tokens.taken("-");
                boolean named = tokens.atName() && List.of("inf", "nan").contains(tokens.peek());
                if (!named && !tokens.atInteger() && !tokens.atFloat()) {
                    throw tokens.expected("a number");
                }
                value();
            }
            default -> tokens.name();
        }
    }

    private void whole(long most, long mostNegative) {
        tokens.integer(tokens.taken("-") ? mostNegative : most);
    }

    void service(ProtoScope around) {
        int line = tokens.line();
        tokens.expect("service");
        String name = tokens.name();
        around.define(name, line);
        ProtoScope scope = new ProtoScope("service " + name);
        tokens.expect("{");
        while (!tokens.taken("}")) {
            if (tokens.at("option")) {
                statement();
            } else if (!tokens.taken(";")) {
                method(scope);
            }
        }
    }

    private void method(ProtoScope scope) {
        int line = tokens.line();
        tokens.expect("rpc");
        scope.define(tokens.name(), line);
        methodType();
        tokens.expect("returns");
        methodType();
        if (tokens.taken("{")) {
            while (!tokens.taken("}")) {
                if (!tokens.taken(";")) {
                    statement();
                }
            }
        } else {
            tokens.expect(";");
        }
    }

    private void methodType() {
        tokens.expect("(");
        tokens.taken("stream");
        tokens.messageType();
        tokens.expect(")");
    }
}
