package io.lakefeed.protobuf;

import io.lakefeed.protobuf.ProtoFile.Enum;
import io.lakefeed.protobuf.ProtoFile.Field;
import io.lakefeed.protobuf.ProtoFile.Message;
import io.lakefeed.protobuf.ProtoFile.Presence;
import io.lakefeed.protobuf.ProtoFile.Value;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Reads {@code .proto} text: proto2, proto3 and editions.
 *
 * <p>It wants the layout only: services, extensions, reserved numbers and options (but for the features that say
 * how fields are written) are passed over, and what a compiler would refuse for other reasons is let through.
 * Tests hold the result against protoc's descriptors.
 *
 * @see <a href="https://protobuf.dev/reference/protobuf/edition-2023-spec/">the language's specification</a>
 */
public final class ProtoParser {
    private final ProtoTokens tokens;
    private boolean proto2 = true;

    private ProtoParser(String text) {
        tokens = new ProtoTokens(text);
    }

    /**
     * The file that {@code text} describes.
     *
     * @throws SchemaException if it is not a {@code .proto} text
     */
    public static ProtoFile parse(String text) {
        return new ProtoParser(text).file();
    }

    private ProtoFile file() {
        String packageName = "";
        List<String> imports = new ArrayList<>();
        Body body = new Body();
        Features features = Features.PROTO2;
        if (tokens.peek().equals("syntax") || tokens.peek().equals("edition")) {
            boolean edition = tokens.take().equals("edition");
            tokens.expect("=");
            String said = tokens.text();
            tokens.expect(";");
            features = edition ? Features.EDITION : Features.ofSyntax(said);
            proto2 = !edition && features.equals(Features.PROTO2);
        }
        while (!tokens.peek().equals(ProtoTokens.END)) {
            switch (tokens.peek()) {
                case "package" -> {
                    tokens.take();
                    packageName = tokens.path();
                    tokens.expect(";");
                }
                case "import" -> {
                    tokens.take();
                    if (!tokens.taken("public") && !tokens.taken("weak")) {
                        tokens.taken("option");
                    }
                    imports.add(tokens.text());
                    tokens.expect(";");
                }
                case "option" -> {
                    tokens.take();
                    features = option(features);
                    tokens.expect(";");
                }
                case "service" -> {
                    tokens.take();
                    tokens.name();
                    braces();
                }
                case "export", "local" -> tokens.take();
                default -> definition(body, features, 0);
            }
        }
        return new ProtoFile(packageName, imports, body.messages, body.enums);
    }

    /** What stands between braces, as it is collected. */
    private static final class Body {
        final List<Field> fields = new ArrayList<>();
        final List<Message> messages = new ArrayList<>();
        final List<Enum> enums = new ArrayList<>();
    }

    private void definition(Body body, Features features, int depth) {
        if (tokens.taken(";")) {
            return;
        }
        if (tokens.taken("message")) {
            String name = tokens.name();
            body.messages.add(message(name, features, depth + 1));
        } else if (tokens.taken("enum")) {
            body.enums.add(enumeration());
        } else if (tokens.taken("extend")) {
            // Extensions are fields that this reader does not know: passed over when records are read.
            tokens.path();
            Body ignored = new Body();
            tokens.expect("{");
            while (!tokens.taken("}")) {
                if (!tokens.taken(";")) {
                    field(ignored, features, null, depth);
                }
            }
        } else {
            throw tokens.wrong("message, enum, extend or service");
        }
    }

    private Message message(String name, Features inherited, int depth) {
        if (depth > WireInput.DEEPEST) {
            throw tokens.wrong("at most " + WireInput.DEEPEST + " messages in each other");
        }
        Features features = inherited;
        Body body = new Body();
        tokens.expect("{");
        while (!tokens.taken("}")) {
            String word = tokens.peek();
            boolean field = tokens.peekSecond().equals("=") || tokens.peekSecond().equals(".");
            if (word.equals("option") && !field) {
                tokens.take();
                features = option(features);
                tokens.expect(";");
            } else if (word.equals("oneof")) {
                tokens.take();
                oneof(body, features, depth);
            } else if (word.equals("reserved") || word.equals("extensions")) {
                while (!tokens.taken(";")) {
                    if (tokens.peek().equals("[")) {
                        fieldOptions(features);
                    } else if (tokens.take().equals(ProtoTokens.END)) {
                        throw tokens.wrong("';'");
                    }
                }
            } else if (word.equals("message") || word.equals("enum") || word.equals("extend") || word.equals(";")) {
                definition(body, features, depth);
            } else if ((word.equals("export") || word.equals("local")) && List.of("message", "enum").contains(tokens.peekSecond())) {
                tokens.take();
            } else {
                field(body, features, null, depth);
            }
        }
        return new Message(name, body.fields, body.messages, body.enums, false);
    }

    private void oneof(Body body, Features inherited, int depth) {
        Features features = inherited;
        String name = tokens.name();
        tokens.expect("{");
        while (!tokens.taken("}")) {
            if (tokens.taken("option")) {
                features = option(features);
                tokens.expect(";");
            } else if (!tokens.taken(";")) {
                field(body, features, name, depth);
            }
        }
    }

    private void field(Body body, Features inherited, String oneof, int depth) {
        Presence label = null;
        if (tokens.taken("repeated")) {
            label = Presence.REPEATED;
        } else if (tokens.taken("required")) {
            label = Presence.REQUIRED;
        } else if (tokens.taken("optional") || oneof != null) {
            label = Presence.EXPLICIT;
        }
        if (tokens.peek().equals("map") && tokens.peekSecond().equals("<")) {
            mapField(body, inherited);
            return;
        }
        String type = tokens.path();
        if (type.equals("group") && proto2) {
            group(body, inherited, label, oneof, depth);
            return;
        }
        String name = tokens.name();
        tokens.expect("=");
        int number = tokens.number();
        Features features = fieldOptions(inherited);
        tokens.expect(";");
        body.fields.add(new Field(name, number, type, features.presence(label), oneof, features.delimited()));
    }

    private void group(Body body, Features inherited, Presence label, String oneof, int depth) {
        String name = tokens.name();
        tokens.expect("=");
        int number = tokens.number();
        Features features = fieldOptions(inherited);
        body.messages.add(message(name, inherited, depth + 1));
        body.fields.add(new Field(
                name.toLowerCase(Locale.ROOT), number, name, features.presence(label), oneof, true));
    }

    private void mapField(Body body, Features inherited) {
        tokens.expect("map");
        tokens.expect("<");
        String key = tokens.path();
        tokens.expect(",");
        String value = tokens.path();
        tokens.expect(">");
        String name = tokens.name();
        tokens.expect("=");
        int number = tokens.number();
        fieldOptions(inherited);
        tokens.expect(";");
        String entry = entryName(name);
        List<Field> fields = List.of(
                new Field("key", 1, key, Presence.IMPLICIT, null, false),
                new Field("value", 2, value, Presence.IMPLICIT, null, false));
        body.messages.add(new Message(entry, fields, List.of(), List.of(), true));
        body.fields.add(new Field(name, number, entry, Presence.REPEATED, null, false));
    }

    /** As protoc names the message behind a map field: {@code by_zone} becomes {@code ByZoneEntry}. */
    private static String entryName(String field) {
        StringBuilder name = new StringBuilder();
        boolean capital = true;
        for (char c : field.toCharArray()) {
            if (c == '_') {
                capital = true;
            } else {
                name.append(capital && c >= 'a' && c <= 'z' ? (char) (c - 32) : c);
                capital = false;
            }
        }
        return name.append("Entry").toString();
    }

    private Enum enumeration() {
        String name = tokens.name();
        List<Value> values = new ArrayList<>();
        tokens.expect("{");
        while (!tokens.taken("}")) {
            boolean value = tokens.peekSecond().equals("=");
            if (!value && tokens.taken("option")) {
                option(Features.PROTO2);
                tokens.expect(";");
            } else if (!value && tokens.taken("reserved")) {
                while (!tokens.taken(";")) {
                    if (tokens.take().equals(ProtoTokens.END)) {
                        throw tokens.wrong("';'");
                    }
                }
            } else if (!tokens.taken(";")) {
                String symbol = tokens.name();
                tokens.expect("=");
                values.add(new Value(symbol, tokens.number()));
                fieldOptions(Features.PROTO2);
                tokens.expect(";");
            }
        }
        return new Enum(name, values);
    }

    private Features fieldOptions(Features inherited) {
        Features features = inherited;
        if (tokens.taken("[")) {
            do {
                features = option(features);
            } while (tokens.taken(","));
            tokens.expect("]");
        }
        return features;
    }

    /** An option without its end; the features with what it says about them. */
    private Features option(Features before) {
        StringBuilder name = new StringBuilder();
        while (!tokens.taken("=")) {
            String part = tokens.peek();
            if (part.equals("(") || part.equals(")") || part.equals(".")) {
                name.append(tokens.take());
            } else {
                name.append(tokens.name());
            }
        }
        if (tokens.peek().equals("{")) {
            Features features = before;
            if (name.toString().equals("features")) {
                tokens.take();
                while (!tokens.taken("}")) {
                    String feature = tokens.name();
                    tokens.expect(":");
                    features = features.with(feature, tokens.take());
                    if (!tokens.taken(",")) {
                        tokens.taken(";");
                    }
                }
                return features;
            }
            braces();
            return before;
        }
        if (!tokens.taken("-")) {
            tokens.taken("+");
        }
        String value = tokens.take();
        while (!List.of(";", ",", "]", ProtoTokens.END).contains(tokens.peek())) {
            tokens.take();
        }
        return name.toString().startsWith("features.") ? before.with(name.substring(9), value) : before;
    }

    /** Passes over a block. */
    private void braces() {
        tokens.expect("{");
        for (int open = 1; open > 0; ) {
            if (tokens.taken("{")) {
                open++;
            } else if (tokens.taken("}")) {
                open--;
            } else if (tokens.take().equals(ProtoTokens.END)) {
                throw tokens.wrong("'}'");
            }
        }
    }
}
