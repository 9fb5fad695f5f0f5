package io.lakefeed.decode;

import io.lakefeed.protobuf.Malformed;
import io.lakefeed.protobuf.ProtoFile.Presence;
import io.lakefeed.protobuf.ProtoMessage;
import io.lakefeed.protobuf.ProtoMessage.Field;
import io.lakefeed.protobuf.ProtoType;
import io.lakefeed.protobuf.WireInput;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * How messages of one writer's type become rows of the reader's: worked out once, then followed for each record.
 *
 * <p>Fields are matched by name, or by an alias of the reader's. While a message is being read its row holds
 * lists, maps and rows that are not finished yet, since Protobuf lets a message come in several pieces.
 */
final class ProtobufPlan {
    private final ProtoMessage writer;
    private final Map<Integer, Step> steps = new HashMap<>();
    private final Object[] template;
    private final List<Finish> finishes = new ArrayList<>();
    private final Map<Integer, ProtobufNested> empties = new HashMap<>();

    /** Reads a field's value, whose tag is read, into its slot. */
    private interface Reading {
        void read(WireInput input, int tag, Object[] row, int depth);
    }

    /** What to do when the message has ended. */
    private interface Finish {
        void apply(Object[] row);
    }

    /**
     * What to do with the field of one number.
     *
     * @param reading null if the reader does not want it
     * @param excluded slots of the other fields of its oneof, which it makes unset
     */
    private record Step(Reading reading, int[] excluded) {}

    private ProtobufPlan(ProtoMessage writer, int slots) {
        this.writer = writer;
        this.template = new Object[slots];
    }

    /**
     * The plan for a message type and the reader's record.
     *
     * @throws BadRecord if the writer's fields do not fit the reader's
     */
    static ProtobufPlan of(ProtoMessage writer, Schema reader, StructType type) {
        ProtobufPlan plan = new ProtobufPlan(writer, type.size());
        Map<String, Integer> slots = slots(writer, reader);
        for (Field field : writer.fields()) {
            Integer slot = slots.get(field.name());
            Reading reading = slot == null
                    ? null
                    : plan.reading(field, slot, type.fields()[slot], reader.getFields().get(slot));
            plan.steps.put(field.number(), new Step(reading, excluded(field, writer, slots)));
        }
        for (Schema.Field field : reader.getFields()) {
            if (!slots.containsValue(field.pos())) {
                plan.template[field.pos()] = AvroDefault.of(field, type.fields()[field.pos()].dataType());
            }
        }
        return plan;
    }

    /** The reader's position of each writer's field that it wants: by its name, or else by an alias. */
    private static Map<String, Integer> slots(ProtoMessage writer, Schema reader) {
        List<String> written = writer.fields().stream().map(Field::name).toList();
        Map<String, Integer> slots = new HashMap<>();
        for (Schema.Field field : reader.getFields()) {
            if (written.contains(field.name())) {
                slots.put(field.name(), field.pos());
            } else {
                field.aliases().stream()
                        .filter(written::contains)
                        .findFirst()
                        .ifPresent(alias -> slots.putIfAbsent(alias, field.pos()));
            }
        }
        return slots;
    }

    private static int[] excluded(Field field, ProtoMessage writer, Map<String, Integer> slots) {
        return writer.fields().stream()
                .filter(other -> field.oneof() != null && field.oneof().equals(other.oneof()) && !other.equals(field))
                .filter(other -> slots.containsKey(other.name()))
                .mapToInt(other -> slots.get(other.name()))
                .toArray();
    }

    /** The row that a message begins with. */
    Object[] fresh() {
        return template.clone();
    }

    /**
     * Reads fields into a row that is not finished.
     *
     * @param group number of the group that they end with; 0 if they end with the input
     */
    void read(WireInput input, Object[] row, int group, int depth) {
        while (group != 0 || !input.atEnd()) {
            int tag = input.tag();
            if ((tag & 7) == WireInput.END_GROUP) {
                input.requireEndOf(group, tag);
                return;
            }
            Step step = steps.get(tag >>> 3);
            if (step == null) {
                input.skip(tag, depth);
                continue;
            }
            for (int slot : step.excluded) {
                row[slot] = null;
            }
            if (step.reading == null) {
                input.skip(tag, depth);
            } else {
                step.reading.read(input, tag, row, depth);
            }
        }
    }

    /** The same row, its values as Spark wants them. */
    Object[] finished(Object[] row) {
        for (Finish finish : finishes) {
            finish.apply(row);
        }
        return row;
    }

    private Reading reading(Field field, int slot, StructField target, Schema.Field reader) {
        Schema schema = AvroDefault.withoutNull(reader.schema());
        if (field.isMap()) {
            return map(field, slot, target.dataType(), schema);
        }
        if (field.presence() == Presence.REPEATED) {
            return repeated(field, slot, target.dataType(), schema);
        }
        Reading reading = isNested(field, target.dataType())
                ? message(field, slot, target.dataType(), schema)
                : single(field, slot, target.dataType());
        if (field.presence() == Presence.REQUIRED) {
            finishes.add(row -> {
                if (row[slot] == null) {
                    throw new Malformed("the required field " + field.name() + " of " + writer.fullName() + " is missing");
                }
            });
        } else if (field.presence() == Presence.EXPLICIT && !target.nullable()) {
            Object unset = AvroDefault.of(reader, target.dataType());
            finishes.add(row -> row[slot] = row[slot] == null ? unset : row[slot]);
        }
        return reading;
    }

    private static boolean isNested(Field field, DataType target) {
        return field.type() == ProtoType.MESSAGE && !ProtobufNested.isText(field.message(), target);
    }

    private Reading single(Field field, int slot, DataType target) {
        ProtobufValue value = ProtobufValue.of(field, target);
        if (field.presence() == Presence.IMPLICIT) {
            template[slot] = value.zero();
        }
        return (input, tag, row, depth) -> {
            requireWireType(field, tag, input);
            row[slot] = value.read(input);
        };
    }

    private Reading message(Field field, int slot, DataType target, Schema schema) {
        ProtobufNested nested = ProtobufNested.of(field, target, schema);
        empties.put(slot, nested);
        finishes.add(row -> row[slot] = row[slot] == null ? null : nested.finished((Object[]) row[slot]));
        return (input, tag, row, depth) -> row[slot] = nested.read(input, tag, (Object[]) row[slot], depth + 1);
    }

    private Reading repeated(Field field, int slot, DataType target, Schema schema) {
        if (!(target instanceof ArrayType array)) {
            throw ProtobufValue.misfit(field, target);
        }
        finishes.add(row -> row[slot] = new GenericArrayData(list(row, slot).toArray()));
        if (isNested(field, array.elementType())) {
            Schema items = AvroDefault.withoutNull(schema.getElementType());
            ProtobufNested nested = ProtobufNested.of(field, array.elementType(), items);
            return (input, tag, row, depth) ->
                    list(row, slot).add(nested.finished(nested.read(input, tag, null, depth + 1)));
        }
        ProtobufValue value = ProtobufValue.of(field, array.elementType());
        return (input, tag, row, depth) -> {
            List<Object> list = list(row, slot);
            if ((tag & 7) == WireInput.LENGTH && field.type().packable()) {
                int before = input.limit("field " + field.name());
                while (!input.atEnd()) {
                    list.add(value.read(input));
                }
                input.unlimit(before);
            } else {
                requireWireType(field, tag, input);
                list.add(value.read(input));
            }
        };
    }

    @SuppressWarnings("unchecked")
    private static List<Object> list(Object[] row, int slot) {
        if (row[slot] == null) {
            row[slot] = new ArrayList<>();
        }
        return (List<Object>) row[slot];
    }

    /** A map's entries are messages of a key and a value; the reader's keys are text, as in Protobuf's JSON. */
    private Reading map(Field field, int slot, DataType target, Schema schema) {
        if (!(target instanceof MapType type)) {
            throw ProtobufValue.misfit(field, target);
        }
        // Nullable, since a value that is a message may be left out: then it is an empty one.
        StructType entryType = new StructType().add("key", type.keyType(), false).add("value", type.valueType());
        ProtobufPlan plan = of(field.message(), ProtobufNested.record(entryType, schema.getValueType()), entryType);
        Object empty = plan.finished(plan.emptyMessages())[1];
        finishes.add(row -> {
            Map<Object, Object> entries = entries(row, slot);
            row[slot] = new ArrayBasedMapData(
                    new GenericArrayData(entries.keySet().toArray()), new GenericArrayData(entries.values().toArray()));
        });
        return (input, tag, row, depth) -> {
            requireWireType(field, tag, input);
            WireInput.requireDepth(depth + 1);
            int before = input.limit("field " + field.name());
            Object[] pair = plan.fresh();
            plan.read(input, pair, 0, depth + 1);
            input.unlimit(before);
            plan.finished(pair);
            if (pair[1] == null) {
                pair[1] = empty;
            }
            entries(row, slot).put(pair[0], pair[1]);
        };
    }

    /** A row whose messages are there and empty. */
    private Object[] emptyMessages() {
        Object[] row = fresh();
        empties.forEach((slot, nested) -> row[slot] = nested.fresh());
        return row;
    }

    @SuppressWarnings("unchecked")
    private static Map<Object, Object> entries(Object[] row, int slot) {
        if (row[slot] == null) {
            row[slot] = new LinkedHashMap<>();
        }
        return (Map<Object, Object>) row[slot];
    }

    private static void requireWireType(Field field, int tag, WireInput input) {
        ProtobufNested.requireWireType(field, field.type().wireType(), tag, input);
    }
}
