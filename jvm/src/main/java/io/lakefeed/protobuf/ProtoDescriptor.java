package io.lakefeed.protobuf;

import io.lakefeed.protobuf.ProtoFile.Enum;
import io.lakefeed.protobuf.ProtoFile.Field;
import io.lakefeed.protobuf.ProtoFile.Message;
import io.lakefeed.protobuf.ProtoFile.Presence;
import io.lakefeed.protobuf.ProtoFile.Value;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads compiled schemas: a {@code FileDescriptorProto}, or a {@code FileDescriptorSet} of them.
 *
 * <p>Field numbers are those of {@code google/protobuf/descriptor.proto}.
 */
public final class ProtoDescriptor {
    private static final List<String> TYPES = List.of(
            "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message",
            "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64");
    private static final int GROUP = 10;

    private ProtoDescriptor() {}

    /**
     * Returns the files of a descriptor set by their names; {@code protoc --descriptor_set_out} writes such sets.
     *
     * @throws SchemaException if the bytes are not a descriptor set
     */
    public static Map<String, ProtoFile> files(byte[] set) {
        Map<String, ProtoFile> files = new LinkedHashMap<>();
        for (Fields file : Fields.of(set).messages(1)) {
            files.put(file.text(1), file(file));
        }
        if (files.isEmpty()) {
            throw new SchemaException("the descriptor set has no file: write one with protoc --descriptor_set_out");
        }
        return files;
    }

    /**
     * Returns the file that a {@code FileDescriptorProto} describes.
     *
     * @throws SchemaException if the bytes are no {@code FileDescriptorProto}
     */
    public static ProtoFile file(byte[] descriptor) {
        return file(Fields.of(descriptor));
    }

    private static ProtoFile file(Fields file) {
        boolean edition = file.number(14, 0) != 0;
        Features features = edition ? Features.EDITION : Features.ofSyntax(file.text(12));
        features = features(features, file, 8, 50);
        List<String> imports = file.texts(3);
        return new ProtoFile(file.text(2), imports, messages(file, 4, features, 0), enums(file, 5));
    }

    private static List<Message> messages(Fields owner, int number, Features features, int depth) {
        if (depth > WireInput.DEEPEST) {
            throw new SchemaException("more than " + WireInput.DEEPEST + " messages in each other");
        }
        List<Message> messages = new ArrayList<>();
        for (Fields message : owner.messages(number)) {
            Features own = features(features, message, 7, 12);
            boolean mapEntry = message.message(7).number(7, 0) != 0;
            List<String> oneofs = message.messages(8).stream().map(oneof -> oneof.text(1)).toList();
            List<Field> fields = message.messages(2).stream()
                    .map(field -> field(field, own, oneofs, mapEntry))
                    .toList();
            messages.add(new Message(
                    message.text(1), fields, messages(message, 3, own, depth + 1), enums(message, 4), mapEntry));
        }
        return messages;
    }

    private static Field field(Fields field, Features inherited, List<String> oneofs, boolean ofMap) {
        Features features = features(inherited, field, 8, 21);
        int type = (int) field.number(5, 0);
        if (type < 1 || type > TYPES.size()) {
            throw new SchemaException("field " + field.text(1) + " has the unknown type " + type);
        }
        String oneof = null;
        Presence label = null;
        if (field.has(9) && field.number(17, 0) == 0) {
            int index = (int) field.number(9, 0);
            oneof = index >= 0 && index < oneofs.size() ? oneofs.get(index) : null;
        }
        if (ofMap) {
            label = Presence.IMPLICIT;
        } else if (field.number(4, 0) == 3) {
            label = Presence.REPEATED;
        } else if (field.number(4, 0) == 2) {
            label = Presence.REQUIRED;
        } else if (field.has(9)) {
            label = Presence.EXPLICIT;
        }
        return new Field(
                field.text(1),
                (int) field.number(3, 0),
                field.has(6) ? field.text(6) : TYPES.get(type - 1),
                features.presence(label),
                oneof,
                type == GROUP || features.delimited(),
                0);
    }

    private static List<Enum> enums(Fields owner, int number) {
        return owner.messages(number).stream()
                .map(each -> new Enum(
                        each.text(1),
                        each.messages(2).stream()
                                .map(value -> new Value(value.text(1), (int) value.number(2, 0)))
                                .toList(),
                        false))
                .toList();
    }

    /** Returns an element's features; {@code options} and {@code of} are the numbers of the fields with them. */
    private static Features features(Features inherited, Fields owner, int options, int of) {
        Fields set = owner.message(options).message(of);
        Features features = switch ((int) set.number(1, 0)) {
            case 1 -> inherited.with("field_presence", "EXPLICIT");
            case 2 -> inherited.with("field_presence", "IMPLICIT");
            case 3 -> inherited.with("field_presence", "LEGACY_REQUIRED");
            default -> inherited;
        };
        return switch ((int) set.number(5, 0)) {
            case 1 -> features.with("message_encoding", "LENGTH_PREFIXED");
            case 2 -> features.with("message_encoding", "DELIMITED");
            default -> features;
        };
    }

    /** The fields of any message by number, as numbers or bytes. */
    private record Fields(Map<Integer, List<Object>> byNumber) {
        static Fields of(byte[] bytes) {
            Map<Integer, List<Object>> found = new LinkedHashMap<>();
            WireInput input = new WireInput().over(bytes, 0);
            try {
                while (!input.atEnd()) {
                    int tag = input.tag();
                    List<Object> values = found.computeIfAbsent(tag >>> 3, number -> new ArrayList<>());
                    switch (tag & 7) {
                        case WireInput.VARINT -> values.add(input.varint());
                        case WireInput.LENGTH -> {
                            int length = input.length();
                            int from = input.take(length);
                            values.add(Arrays.copyOfRange(bytes, from, from + length));
                        }
                        default -> input.skip(tag, 0);
                    }
                }
            } catch (Malformed broken) {
                throw new SchemaException("not a Protobuf descriptor: " + broken.getMessage());
            }
            return new Fields(found);
        }

        boolean has(int number) {
            return byNumber.containsKey(number);
        }

        long number(int number, long missing) {
            List<Object> values = byNumber.getOrDefault(number, List.of());
            return !values.isEmpty() && values.get(values.size() - 1) instanceof Long found ? found : missing;
        }

        List<String> texts(int number) {
            return bytes(number).stream()
                    .map(each -> new String(each, StandardCharsets.UTF_8))
                    .toList();
        }

        String text(int number) {
            List<String> found = texts(number);
            return found.isEmpty() ? "" : found.get(found.size() - 1);
        }

        List<Fields> messages(int number) {
            return bytes(number).stream().map(Fields::of).toList();
        }

        Fields message(int number) {
            List<Fields> found = messages(number);
            return found.isEmpty() ? new Fields(Map.of()) : found.get(found.size() - 1);
        }

        private List<byte[]> bytes(int number) {
            return byNumber.getOrDefault(number, List.of()).stream()
                    .filter(byte[].class::isInstance)
                    .map(byte[].class::cast)
                    .toList();
        }
    }
}
