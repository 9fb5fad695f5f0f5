package io.lakefeed.decode;

import io.lakefeed.protobuf.ProtoMessage;
import io.lakefeed.protobuf.ProtoMessage.Field;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.JsonProperties;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.Schema.Type;

/**
 * Converts a message type to an Avro schema, so that the code for tables and their evolution knows only Avro schemas.
 *
 * <p>A field with presence is a union with null; a field without presence has zero as its default. Enums are strings,
 * because writers can have more symbols than readers. Keys of maps are text.
 */
final class ProtobufAvro {
    private static final int UINT64_DIGITS = 20;

    private final Map<String, Schema> records = new HashMap<>();

    private ProtobufAvro() {}

    static Schema of(ProtoMessage message) {
        return new ProtobufAvro().record(message);
    }

    private Schema record(ProtoMessage message) {
        Schema known = records.get(message.fullName());
        if (known != null) {
            return known;
        }
        String namespace = message.fullName().substring(0, Math.max(0, message.fullName().lastIndexOf('.')));
        Schema record = Schema.createRecord(message.name(), null, namespace, false);
        records.put(message.fullName(), record);
        List<Schema.Field> fields = new ArrayList<>();
        for (Field field : message.fields()) {
            fields.add(field(field));
        }
        record.setFields(fields);
        return record;
    }

    private Schema.Field field(Field field) {
        if (field.isMap()) {
            Schema values = value(field.message().fields().stream()
                    .filter(part -> part.number() == 2)
                    .findFirst()
                    .orElseThrow());
            return new Schema.Field(field.name(), Schema.createMap(values), null, Map.of());
        }
        Schema value = value(field);
        return switch (field.presence()) {
            case REPEATED -> new Schema.Field(field.name(), Schema.createArray(value), null, List.of());
            case REQUIRED -> new Schema.Field(field.name(), value);
            case IMPLICIT -> new Schema.Field(field.name(), value, null, zero(field));
            case EXPLICIT -> new Schema.Field(
                    field.name(),
                    Schema.createUnion(Schema.create(Type.NULL), value),
                    null,
                    JsonProperties.NULL_VALUE);
        };
    }

    private Schema value(Field field) {
        return switch (field.type()) {
            case DOUBLE -> Schema.create(Type.DOUBLE);
            case FLOAT -> Schema.create(Type.FLOAT);
            case BOOL -> Schema.create(Type.BOOLEAN);
            case STRING, ENUM -> Schema.create(Type.STRING);
            case BYTES -> Schema.create(Type.BYTES);
            case INT32, SINT32, SFIXED32 -> Schema.create(Type.INT);
            case UINT32, FIXED32, INT64, SINT64, SFIXED64 -> Schema.create(Type.LONG);
            case UINT64, FIXED64 -> LogicalTypes.decimal(UINT64_DIGITS).addToSchema(Schema.create(Type.BYTES));
            case MESSAGE -> message(field.message());
        };
    }

    private Schema message(ProtoMessage message) {
        if (ProtobufNested.isTimestamp(message)) {
            return LogicalTypes.timestampMicros().addToSchema(Schema.create(Type.LONG));
        }
        if (ProtobufJson.isJson(message)) {
            return Schema.create(Type.STRING);
        }
        return ProtobufNested.isWrapper(message) ? value(message.fields().get(0)) : record(message);
    }

    private static Object zero(Field field) {
        return switch (field.type()) {
            case DOUBLE -> 0.0;
            case FLOAT -> 0.0f;
            case BOOL -> false;
            case STRING, BYTES -> "";
            case UINT64, FIXED64 -> "\u0000"; // The default 0 as one byte, in the form that Avro's JSON has for bytes.
            case ENUM -> field.symbols().stream()
                    .filter(each -> each.number() == 0)
                    .map(each -> each.name())
                    .findFirst()
                    .orElse("0");
            case UINT32, FIXED32, INT64, SINT64, SFIXED64 -> 0L;
            default -> 0;
        };
    }
}
