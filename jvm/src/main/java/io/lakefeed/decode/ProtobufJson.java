package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.lakefeed.protobuf.Malformed;
import io.lakefeed.protobuf.ProtoFile.Presence;
import io.lakefeed.protobuf.ProtoMessage;
import io.lakefeed.protobuf.ProtoMessage.Field;
import io.lakefeed.protobuf.ProtoType;
import io.lakefeed.protobuf.WireInput;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Messages as JSON text where a column cannot hold them: a message inside a message of its own type, and {@code
 * google.protobuf.Struct}, {@code Value} and {@code ListValue}, which stand for JSON.
 */
final class ProtobufJson {
    private static final String STRUCT = "google.protobuf.Struct";
    private static final String VALUE = "google.protobuf.Value";
    private static final String LIST = "google.protobuf.ListValue";
    private static final ObjectMapper JSON = new ObjectMapper();

    private final ProtoMessage message;
    private final Map<Integer, Field> fields;
    private final Map<Integer, ProtobufValue> values = new HashMap<>();
    /** By field number; made when the first is met, since types contain each other. */
    private final Map<Integer, ProtobufJson> nested = new HashMap<>();

    private ProtobufJson(ProtoMessage message) {
        this.message = message;
        this.fields = message.fields().stream().collect(Collectors.toMap(Field::number, field -> field));
    }

    /** Reads messages of a type, length-delimited, as JSON text. */
    static ProtobufValue of(Field field) {
        ProtobufJson reader = new ProtobufJson(field.message());
        return input -> {
            int outer = input.limit("field " + field.name());
            Object tree = reader.tree(input, new LinkedHashMap<>(), 0, 0);
            input.unlimit(outer);
            try {
                return UTF8String.fromString(JSON.writeValueAsString(tree));
            } catch (JsonProcessingException unwritable) {
                throw new Malformed("field " + field.name() + ": " + unwritable.getOriginalMessage());
            }
        };
    }

    /** Whether the type stands for any JSON. */
    static boolean isJson(ProtoMessage message) {
        return List.of(STRUCT, VALUE, LIST).contains(message.fullName());
    }

    /** The message's fields as maps, lists and what Jackson writes. */
    private Object tree(WireInput input, Map<String, Object> tree, int group, int depth) {
        WireInput.requireDepth(depth);
        while (group != 0 || !input.atEnd()) {
            int tag = input.tag();
            if ((tag & 7) == WireInput.END_GROUP) {
                input.requireEndOf(group, tag);
                break;
            }
            Field field = fields.get(tag >>> 3);
            if (field == null) {
                input.skip(tag, depth);
            } else {
                read(field, tag, input, tree, depth);
            }
        }
        for (Field field : message.fields()) {
            if (field.isMap()) {
                tree.putIfAbsent(field.name(), Map.of());
            } else if (field.presence() == Presence.REPEATED) {
                tree.putIfAbsent(field.name(), List.of());
            } else if (field.presence() == Presence.IMPLICIT && field.type() != ProtoType.MESSAGE) {
                tree.putIfAbsent(field.name(), plain(value(field).zero()));
            }
        }
        return meant(tree);
    }

    @SuppressWarnings("unchecked")
    private void read(Field field, int tag, WireInput input, Map<String, Object> tree, int depth) {
        if (field.oneof() != null) {
            message.fields().stream()
                    .filter(other -> field.oneof().equals(other.oneof()))
                    .forEach(other -> tree.remove(other.name()));
        }
        boolean packed = (tag & 7) == WireInput.LENGTH && field.type().packable();
        if (field.presence() == Presence.REPEATED && packed) {
            List<Object> list = (List<Object>) tree.computeIfAbsent(field.name(), name -> new ArrayList<>());
            int outer = input.limit("field " + field.name());
            while (!input.atEnd()) {
                list.add(plain(value(field).read(input)));
            }
            input.unlimit(outer);
            return;
        }
        Object one = one(field, tag, input, depth);
        if (field.isMap()) {
            Map<String, Object> entry = (Map<String, Object>) one;
            ((Map<String, Object>) tree.computeIfAbsent(field.name(), name -> new LinkedHashMap<>()))
                    .put(String.valueOf(entry.get("key")), entry.get("value"));
        } else if (field.presence() == Presence.REPEATED) {
            ((List<Object>) tree.computeIfAbsent(field.name(), name -> new ArrayList<>())).add(one);
        } else {
            tree.put(field.name(), one);
        }
    }

    private Object one(Field field, int tag, WireInput input, int depth) {
        if (field.type() != ProtoType.MESSAGE) {
            ProtobufNested.requireWireType(field, field.type().wireType(), tag, input);
            return plain(value(field).read(input));
        }
        ProtobufJson inner = nested.computeIfAbsent(field.number(), number -> new ProtobufJson(field.message()));
        if (field.delimited()) {
            ProtobufNested.requireWireType(field, WireInput.START_GROUP, tag, input);
            return inner.tree(input, new LinkedHashMap<>(), field.number(), depth + 1);
        }
        ProtobufNested.requireWireType(field, WireInput.LENGTH, tag, input);
        int outer = input.limit("field " + field.name());
        Object tree = inner.tree(input, new LinkedHashMap<>(), 0, depth + 1);
        input.unlimit(outer);
        return tree;
    }

    /** What stands for a message of one of Protobuf's own types. */
    private Object meant(Map<String, Object> tree) {
        return switch (message.fullName()) {
            case STRUCT -> tree.get("fields");
            case LIST -> tree.get("values");
            case VALUE -> tree.containsKey("null_value") || tree.isEmpty() ? null : tree.values().iterator().next();
            default -> {
                if (ProtobufNested.isTimestamp(message)) {
                    yield Instant.ofEpochSecond((long) tree.get("seconds"), (long) tree.get("nanos")).toString();
                }
                yield ProtobufNested.isWrapper(message) ? tree.get("value") : tree;
            }
        };
    }

    private ProtobufValue value(Field field) {
        return values.computeIfAbsent(field.number(), number -> ProtobufValue.of(field, natural(field.type())));
    }

    private static DataType natural(ProtoType type) {
        return switch (type) {
            case DOUBLE -> DataTypes.DoubleType;
            case FLOAT -> DataTypes.FloatType;
            case BOOL -> DataTypes.BooleanType;
            case BYTES -> DataTypes.BinaryType;
            case STRING, ENUM -> DataTypes.StringType;
            case UINT64, FIXED64 -> DataTypes.createDecimalType(20, 0);
            default -> DataTypes.LongType;
        };
    }

    private static Object plain(Object value) {
        if (value instanceof UTF8String text) {
            return text.toString();
        }
        return value instanceof Decimal decimal ? decimal.toJavaBigDecimal() : value;
    }
}
