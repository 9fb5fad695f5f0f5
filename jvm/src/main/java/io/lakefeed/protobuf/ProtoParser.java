package io.lakefeed.protobuf;

import static io.lakefeed.protobuf.ProtoTokens.wrong;

import io.lakefeed.protobuf.ProtoFile.Enum;
import io.lakefeed.protobuf.ProtoFile.Field;
import io.lakefeed.protobuf.ProtoFile.Message;
import io.lakefeed.protobuf.ProtoFile.Presence;
import io.lakefeed.protobuf.ProtoFile.Value;
import io.lakefeed.protobuf.ProtoOptions.Option;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Set;

/**
 * Reads {@code .proto} text: proto2, proto3 and editions.
 *
 * <p>The parser returns only the layout of messages. It refuses a text that protoc refuses, except for mistakes that do
 * not change how records are read: unknown options, targets of extensions, and types in services. Tests compare its
 * results with protoc's descriptors, and its refusals with protoc's.
 *
 * @see <a href="https://protobuf.dev/reference/protobuf/edition-2023-spec/">the language's specification</a>
 */
public final class ProtoParser {
    private static final Set<String> MAP_KEYS = Set.of(
            "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64",
            "bool", "string");

    private enum Syntax {
        PROTO2,
        PROTO3,
        EDITION
    }

    private final ProtoTokens tokens;
    private final ProtoOptions options;
    private final ProtoReserved reserved;
    private Syntax syntax = Syntax.PROTO2;

    private ProtoParser(String text) {
        tokens = new ProtoTokens(text);
        options = new ProtoOptions(tokens);
        reserved = new ProtoReserved(tokens, options);
    }

    /**
     * Returns the file that {@code text} describes.
     *
     * @throws SchemaException if protoc would refuse {@code text}; the message has the line
     */
    public static ProtoFile parse(String text) {
        return new ProtoParser(text).file();
    }

    private ProtoFile file() {
        String packageName = null;
        List<String> imports = new ArrayList<>();
        Body body = new Body(new ProtoScope("the file"));
        Features features = options.blockFeatures(syntax(), Features.Place.FILE);
        while (!tokens.atEnd()) {
            int line = tokens.line();
            if (tokens.taken("package")) {
                if (packageName != null) {
                    throw wrong(line, "a second package: remove one of the two");
                }
                packageName = tokens.names();
                tokens.expect(";");
            } else if (tokens.taken("import")) {
                if (!tokens.taken("public") && !tokens.taken("weak")) {
                    tokens.taken("option");
                }
                String path = tokens.text();
                if (imports.contains(path)) {
                    throw wrong(line, "the import \"" + path + "\" stands there twice: remove one of the two");
                }
                imports.add(path);
                tokens.expect(";");
            } else if (tokens.at("option")) {
                options.statement();
            } else if (tokens.at("service")) {
                options.service(body.scope);
            } else if (!modifier()) {
                definition(body, features, 0);
            }
        }
        return new ProtoFile(packageName == null ? "" : packageName, imports, body.messages, body.enums);
    }

    private Features syntax() {
        int line = tokens.line();
        if (tokens.taken("syntax")) {
            String version = version();
            if (!version.equals("proto2") && !version.equals("proto3")) {
                throw wrong(line, "the syntax \"" + version + "\" is unknown: write proto2 or proto3");
            }
            syntax = version.equals("proto3") ? Syntax.PROTO3 : Syntax.PROTO2;
            return Features.ofSyntax(version);
        }
        if (tokens.taken("edition")) {
            String version = version();
            if (!Features.EDITIONS.contains(version)) {
                throw wrong(line, "the edition \"" + version + "\" is unknown: write one of "
                        + String.join(", ", Features.EDITIONS));
            }
            syntax = Syntax.EDITION;
            options.allowFeatures();
            return Features.EDITION;
        }
        return Features.PROTO2;
    }

    private String version() {
        tokens.expect("=");
        String version = tokens.text();
        tokens.expect(";");
        return version;
    }

    /** Skips an edition's {@code export} or {@code local}; returns whether the text has one. */
    private boolean modifier() {
        boolean found = syntax == Syntax.EDITION
                && (tokens.at("export") || tokens.at("local"))
                && (tokens.secondIs("message") || tokens.secondIs("enum"));
        if (found) {
            tokens.take();
        }
        return found;
    }

    private static final class Body {
        final ProtoScope scope;
        final List<Field> fields = new ArrayList<>();
        final List<Message> messages = new ArrayList<>();
        final List<Enum> enums = new ArrayList<>();

        Body(ProtoScope scope) {
            this.scope = scope;
        }
    }

    /** The element that contains a field: a message, one of its oneofs, or a block of extensions. */
    private record Place(Body body, Features features, String oneof, boolean extension, int depth) {}

    private void definition(Body body, Features features, int depth) {
        if (tokens.taken(";")) {
            return;
        }
        int line = tokens.line();
        if (tokens.taken("message")) {
            String name = tokens.name();
            body.scope.define(name, line);
            body.messages.add(message(name, features, depth + 1));
        } else if (tokens.taken("enum")) {
            body.enums.add(enumeration(body.scope, features));
        } else if (tokens.taken("extend")) {
            // Drop the extensions: their values in records are then skipped, like fields of newer schemas.
            tokens.messageType();
            Body skipped = new Body(body.scope);
            tokens.expect("{");
            do {
                field(new Place(skipped, features, null, true, depth));
            } while (!tokens.taken("}"));
            // But keep the message that a group among the extensions defines.
            body.messages.addAll(skipped.messages);
        } else {
            throw tokens.expected("message, enum, extend or service");
        }
    }

    private Message message(String name, Features inherited, int depth) {
        if (depth > WireInput.DEEPEST) {
            throw wrong(tokens.line(), "more than " + WireInput.DEEPEST
                    + " messages inside each other: define some outside");
        }
        Body body = new Body(new ProtoScope("message " + name));
        tokens.expect("{");
        Features features = options.blockFeatures(inherited, Features.Place.MESSAGE);
        while (!tokens.taken("}")) {
            if (tokens.at("option")) {
                options.statement();
            } else if (tokens.at("oneof")) {
                oneof(body, features, depth);
            } else if (tokens.at("reserved")) {
                reserved.reserved(body.scope, ProtoScope.LARGEST_NUMBER);
            } else if (tokens.at("extensions")) {
                if (syntax == Syntax.PROTO3) {
                    throw wrong(tokens.line(), "proto3 has no extensions: remove the line");
                }
                reserved.extensions(body.scope);
            } else if (tokens.at("message") || tokens.at("enum") || tokens.at("extend") || tokens.at(";")) {
                definition(body, features, depth);
            } else if (!modifier()) {
                field(new Place(body, features, null, false, depth));
            }
        }
        body.scope.close();
        return new Message(name, body.fields, body.messages, body.enums, false);
    }

    private void oneof(Body body, Features inherited, int depth) {
        int line = tokens.line();
        tokens.expect("oneof");
        String name = tokens.name();
        body.scope.define(name, line);
        int before = body.fields.size();
        tokens.expect("{");
        Features features = options.blockFeatures(inherited, Features.Place.ONEOF);
        do {
            if (tokens.at("option")) {
                options.statement();
            } else {
                field(new Place(body, features, name, false, depth));
            }
        } while (!tokens.taken("}"));
        if (body.fields.size() == before) {
            throw wrong(line, "the oneof " + name + " has no field: add one, or remove it");
        }
    }

    private Presence label(Place place) {
        int line = tokens.line();
        String word = tokens.peek();
        Presence label = tokens.taken("repeated") ? Presence.REPEATED
                : tokens.taken("required") ? Presence.REQUIRED
                : tokens.taken("optional") ? Presence.EXPLICIT : null;
        boolean map = tokens.at("map") && tokens.secondIs("<");
        if (label == null) {
            if (syntax == Syntax.PROTO2 && place.oneof == null && !map) {
                throw tokens.expected("optional, required or repeated");
            }
            return place.oneof == null ? null : Presence.EXPLICIT;
        }
        if (place.oneof != null || map) {
            throw wrong(line, "a field of a " + (map ? "map" : "oneof") + " has no label: remove '" + word + "'");
        }
        if (label != Presence.REPEATED && syntax == Syntax.EDITION) {
            throw wrong(line, "an edition has no label '" + word + "': use features.field_presence");
        }
        if (label == Presence.REQUIRED && syntax == Syntax.PROTO3) {
            throw wrong(line, "proto3 has no required fields: remove 'required'");
        }
        return label;
    }

    private void field(Place place) {
        Presence label = label(place);
        int line = tokens.line();
        if (tokens.at("map") && tokens.secondIs("<")) {
            mapField(place);
            return;
        }
        String type = tokens.path();
        if (type.equals("group")) {
            group(place, label, line);
            return;
        }
        String name = tokens.name();
        int number = number(place, name, line);
        Features features = fieldOptions(place, type, label, line);
        tokens.expect(";");
        place.body.fields.add(new Field(
                name, number, type, features.presence(label), place.oneof, features.delimited(), line));
    }

    private int number(Place place, String name, int line) {
        place.body.scope.define(name, line);
        tokens.expect("=");
        int number = (int) tokens.integer(Integer.MAX_VALUE);
        if (place.extension) {
            ProtoScope.requireFieldNumber(number, name, line);
        } else {
            place.body.scope.number(name, number, line);
        }
        return number;
    }

    private void group(Place place, Presence label, int line) {
        if (syntax != Syntax.PROTO2) {
            throw wrong(line, "groups are for proto2: use a message");
        }
        String name = tokens.name();
        if (!Character.isUpperCase(name.charAt(0))) {
            throw wrong(line, "the name of the group " + name + " needs a capital letter: write it so");
        }
        place.body.scope.define(name, line);
        String fieldName = name.toLowerCase(Locale.ROOT);
        int number = number(place, fieldName, line);
        Features features = fieldOptions(place, name, label, line);
        place.body.messages.add(message(name, place.features, place.depth + 1));
        place.body.fields.add(new Field(fieldName, number, name, features.presence(label), place.oneof, true, line));
    }

    private void mapField(Place place) {
        int line = tokens.line();
        if (place.oneof != null || place.extension) {
            throw wrong(line, "a map cannot be " + (place.extension ? "an extension" : "in a oneof")
                    + ": put it into a message");
        }
        tokens.expect("map");
        tokens.expect("<");
        String key = tokens.path();
        if (!MAP_KEYS.contains(key)) {
            throw wrong(line, key + " cannot be the keys of a map: use a whole number, bool or string");
        }
        tokens.expect(",");
        String value = tokens.path();
        tokens.expect(">");
        String name = tokens.name();
        int number = number(place, name, line);
        fieldOptions(place, value, Presence.REPEATED, line);
        tokens.expect(";");
        String entry = entryName(name);
        place.body.scope.define(entry, line);
        List<Field> fields = List.of(
                new Field("key", 1, key, Presence.IMPLICIT, null, false, line),
                new Field("value", 2, value, Presence.IMPLICIT, null, false, line));
        place.body.messages.add(new Message(entry, fields, List.of(), List.of(), true));
        place.body.fields.add(new Field(name, number, entry, Presence.REPEATED, null, false, line));
    }

    /** Returns protoc's name for the message of a map's entries: {@code ByZoneEntry} for {@code by_zone}. */
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

    private Features fieldOptions(Place place, String type, Presence label, int line) {
        List<Option> found = new ArrayList<>();
        boolean hasDefault = false;
        if (tokens.taken("[")) {
            do {
                if (tokens.at("default") && tokens.secondIs("=")) {
                    requireDefaultAllowed(label, hasDefault);
                    hasDefault = true;
                    tokens.take();
                    tokens.expect("=");
                    options.defaultOf(type);
                } else {
                    found.addAll(options.option());
                }
            } while (tokens.taken(","));
            tokens.expect("]");
        }
        Features features = ProtoOptions.applied(place.features, found, Features.Place.FIELD);
        boolean ownPresence = found.stream().anyMatch(each -> each.name().equals("features.field_presence"));
        if (ownPresence && (label == Presence.REPEATED || place.oneof != null || place.extension)) {
            throw wrong(line, "a field that is repeated, an extension or in a oneof has no"
                    + " features.field_presence: remove it");
        }
        if (hasDefault && features.presence(label) == Presence.IMPLICIT) {
            throw wrong(line, "a field with implicit presence has no default: remove it");
        }
        return features;
    }

    private void requireDefaultAllowed(Presence label, boolean second) {
        String why = second ? "a field has one default" : label == Presence.REPEATED ? "a repeated field has no default"
                : syntax == Syntax.PROTO3 ? "proto3 has no defaults" : null;
        if (why != null) {
            throw wrong(tokens.line(), why + ": remove it");
        }
    }

    private Enum enumeration(ProtoScope around, Features inherited) {
        int line = tokens.line();
        String name = tokens.name();
        around.define(name, line);
        ProtoScope scope = new ProtoScope("enum " + name);
        List<Value> values = new ArrayList<>();
        Option alias = null;
        tokens.expect("{");
        Features features = options.blockFeatures(inherited, Features.Place.ENUM);
        while (!tokens.taken("}")) {
            if (tokens.at("option")) {
                List<Option> found = options.statement();
                alias = found.stream().filter(each -> each.name().equals("allow_alias")).findFirst().orElse(alias);
            } else if (tokens.at("reserved")) {
                reserved.reserved(scope, Integer.MAX_VALUE);
            } else if (!tokens.taken(";")) {
                values.add(enumValue(around, scope));
            }
        }
        checkEnum(name, values, features, line);
        scope.checkAlias(alias);
        scope.close();
        return new Enum(name, values, !features.openEnums());
    }

    private Value enumValue(ProtoScope around, ProtoScope scope) {
        int line = tokens.line();
        String name = tokens.name();
        around.define(name, line);
        tokens.expect("=");
        int number = (int) (tokens.taken("-") ? -tokens.integer(1L << 31) : tokens.integer(Integer.MAX_VALUE));
        scope.value(name, number, line);
        options.list();
        tokens.expect(";");
        return new Value(name, number);
    }

    private static void checkEnum(String name, List<Value> values, Features features, int line) {
        if (values.isEmpty()) {
            throw wrong(line, "the enum " + name + " has no value: add one");
        }
        if (features.openEnums() && values.get(0).number() != 0) {
            throw wrong(line, "the first value of the enum " + name + " has to be 0: add one, or move it up");
        }
    }
}
