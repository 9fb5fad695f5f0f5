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
 * Converts messages of a writer's type to rows of the reader's type. A plan is compiled once for many records.
 *
 * <p>Fields match by their name or by an alias in the reader's schema. Until a message ends, its row holds unfinished
 * lists, maps and rows, because a message can come in several pieces.
 */
final class ProtobufPlan {
    private final ProtoMessage writer;
    private final Map<Integer, Step> steps = new HashMap<>();
    private final Object[] template;
    private final List<Finish> finishes = new ArrayList<>();
    private final Map<Integer, ProtobufNested> empties = new HashMap<>();
    private final MemoryBudget budget;

    /** The values of unset repeated fields, which all rows share, because Spark does not write to rows. */
    private static final GenericArrayData NO_ITEMS = new GenericArrayData(new Object[0]);

    private static final ArrayBasedMapData NO_ENTRIES = new ArrayBasedMapData(NO_ITEMS, NO_ITEMS);
    /** The bytes of memory of a row with its objects; the next constants: of a list, a map, an entry. */
    private static final int ROW = 80;

    private static final int LIST = 112;
    private static final int MAP = 224;
    private static final int ENTRY = 100;

    /** Reads a field's value, after its tag, into a slot of the row. */
    interface Reading {
        void read(WireInput input, int tag, Object[] row, int depth);
    }

    /** Stands for no value: a {@link Finish} with it always runs, even if the field was not set. */
    private static final Object ANY = new Object();

    /**
     * Completes a field's value when the message has ended.
     *
     * @param finished the value of an unset field, which is already complete
     */
    private record Finish(String name, int slot, Object finished, Finishing finishing) {}

    private interface Finishing {
        void apply(Object[] row);
    }

    /**
     * Handles one field; a plan finds the step by the field's number.
     *
     * @param name the field's name in the writer's schema
     * @param reading null if the reader does not need the field
     * @param excluded the slots of the other fields in the same oneof, which are cleared when this field is read
     */
    private record Step(String name, Reading reading, int[] excluded) {}

    /** Creates a plan without steps, for rows with this number of slots. */
    ProtobufPlan(ProtoMessage writer, int slots, MemoryBudget budget) {
        this.writer = writer;
        this.budget = budget;
        this.template = new Object[slots];
    }

    /**
     * Returns the plan for reading messages of a type as the reader's record.
     *
     * @throws BadRecord if the writer's fields do not fit the reader's
     */
    static ProtobufPlan of(ProtoMessage writer, Schema reader, StructType type, MemoryBudget budget) {
        ProtobufPlan plan = new ProtobufPlan(writer, type.size(), budget);
        Map<String, Integer> slots = slots(writer, reader);
        for (Field field : writer.fields()) {
            Integer slot = slots.get(field.name());
            Reading reading = slot == null
                    ? null
                    : plan.reading(field, slot, type.fields()[slot], reader.getFields().get(slot));
            plan.add(field, reading, slots);
        }
        for (Schema.Field field : reader.getFields()) {
            if (!slots.containsValue(field.pos())) {
                plan.template[field.pos()] = AvroDefault.of(field, type.fields()[field.pos()].dataType());
            }
        }
        return plan;
    }

    /** Returns the indexes of the reader's fields, by the names of the writer's fields that match them. */
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

    /** Adds the step of a field; {@code slots} has the slots of all fields, by name. */
    void add(Field field, Reading reading, Map<String, Integer> slots) {
        int[] excluded = writer.fields().stream()
                .filter(other -> field.oneof() != null && field.oneof().equals(other.oneof()) && !other.equals(field))
                .filter(other -> slots.containsKey(other.name()))
                .mapToInt(other -> slots.get(other.name()))
                .toArray();
        steps.put(field.number(), new Step(field.name(), reading, excluded));
    }

    /** Returns a row with the values of unset fields. */
    Object[] fresh() {
        return template.clone();
    }

    int cost() {
        return ROW + 4 * template.length;
    }

    /**
     * Reads fields into an unfinished row.
     *
     * @param group the number of the group whose end also ends the fields; 0 if the fields end with the input
     */
    void read(WireInput input, Object[] row, int group, int depth) {
        Step step = null;
        try {
            while (group != 0 || !input.atEnd()) {
                step = null;
                int tag = input.tag();
                if ((tag & 7) == WireInput.END_GROUP) {
                    input.requireEndOf(group, tag);
                    return;
                }
                step = steps.get(tag >>> 3);
                if (step == null) {
                    input.skip(tag, depth);
                    continue;
                }
                if (step.excluded.length > 0) {
                    exclude(step.excluded, row);
                }
                if (step.reading == null) {
                    input.skip(tag, depth);
                } else {
                    step.reading.read(input, tag, row, depth);
                }
            }
        } catch (RuntimeException bad) {
            throw step == null ? BadRecord.of(bad) : BadRecord.of(bad).at(step.name);
        }
    }

    private void exclude(int[] slots, Object[] row) {
        // Charge the clearing: with two bytes, a record can make a oneof switch between a thousand members.
        budget.charge(slots.length);
        for (int slot : slots) {
            row[slot] = null;
        }
    }

    /** Converts the row's values to Spark's form and returns the same row. */
    Object[] finished(Object[] row) {
        String name = null;
        try {
            for (Finish finish : finishes) {
                if (row[finish.slot] != finish.finished) {
                    name = finish.name;
                    finish.finishing.apply(row);
                }
            }
        } catch (RuntimeException bad) {
            throw BadRecord.of(bad).at(name);
        }
        return row;
    }

    private void finish(Field field, int slot, Object finished, Finishing finishing) {
        finishes.add(new Finish(field.name(), slot, finished, finishing));
    }

    private Reading reading(Field field, int slot, StructField target, Schema.Field reader) {
        Schema schema = AvroDefault.withoutNull(reader.schema());
        if (field.isMap()) {
            return map(field, slot, target.dataType(), schema);
        }
        if (field.presence() == Presence.REPEATED) {
            return repeated(field, slot, target.dataType(), schema);
        }
        Reading reading = isMessage(field)
                ? message(field, slot, target.dataType(), schema)
                : single(field, slot, target.dataType());
        if (field.presence() == Presence.REQUIRED) {
            finish(field, slot, ANY, row -> {
                if (row[slot] == null) {
                    throw new Malformed("the required field of " + writer.fullName() + " is missing");
                }
            });
        } else if (field.presence() == Presence.EXPLICIT && !target.nullable()) {
            Object unset = AvroDefault.of(reader, target.dataType());
            finish(field, slot, ANY, row -> row[slot] = row[slot] == null ? unset : row[slot]);
        }
        return reading;
    }

    private static boolean isMessage(Field field) {
        return field.type() == ProtoType.MESSAGE;
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
        ProtobufNested nested = ProtobufNested.of(field, target, schema, budget);
        empties.put(slot, nested);
        finish(field, slot, null, row -> row[slot] = nested.finished(row[slot]));
        return (input, tag, row, depth) -> row[slot] = nested.read(input, tag, row[slot], depth + 1);
    }

    private Reading repeated(Field field, int slot, DataType target, Schema schema) {
        if (!(target instanceof ArrayType array)) {
            throw ProtobufValue.misfit(field, target);
        }
        finish(field, slot, NO_ITEMS, row -> row[slot] = new GenericArrayData(((List<?>) row[slot]).toArray()));
        template[slot] = NO_ITEMS;
        if (isMessage(field)) {
            Schema items = AvroDefault.withoutNull(schema.getElementType());
            ProtobufNested nested = ProtobufNested.of(field, array.elementType(), items, budget);
            return (input, tag, row, depth) -> {
                List<Object> list = list(row, slot);
                budget.charge(MemoryBudget.OBJECT);
                try {
                    list.add(nested.whole(input, tag, depth + 1));
                } catch (RuntimeException bad) {
                    throw BadRecord.of(bad).item(list.size());
                }
            };
        }
        ProtobufValue value = ProtobufValue.of(field, array.elementType());
        return (input, tag, row, depth) -> {
            List<Object> list = list(row, slot);
            if ((tag & 7) == WireInput.LENGTH && field.type().packable()) {
                int before = input.limit();
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
    private List<Object> list(Object[] row, int slot) {
        if (row[slot] == NO_ITEMS) {
            budget.charge(LIST);
            row[slot] = new ArrayList<>(4);
        }
        return (List<Object>) row[slot];
    }

    /** Reads a map, a list of messages with a key and a value; keys become text, as in Protobuf's JSON. */
    private Reading map(Field field, int slot, DataType target, Schema schema) {
        if (!(target instanceof MapType type)) {
            throw ProtobufValue.misfit(field, target);
        }
        // The value is nullable: if it is a message, it can be missing, and an empty message replaces it below.
        StructType entryType = new StructType().add("key", type.keyType(), false).add("value", type.valueType());
        ProtobufPlan plan = of(
                field.message(), ProtobufNested.record(entryType, schema.getValueType()), entryType, budget);
        ProtobufNested message = plan.empties.get(1);
        finish(field, slot, NO_ENTRIES, row -> {
            Map<?, ?> entries = (Map<?, ?>) row[slot];
            row[slot] = new ArrayBasedMapData(
                    new GenericArrayData(entries.keySet().toArray()),
                    new GenericArrayData(entries.values().toArray()));
        });
        template[slot] = NO_ENTRIES;
        return (input, tag, row, depth) -> {
            requireWireType(field, tag, input);
            WireInput.requireDepth(depth + 1);
            Map<Object, Object> entries = entries(row, slot);
            try {
                int before = input.limit();
                budget.charge(ENTRY);
                Object[] pair = plan.fresh();
                plan.read(input, pair, 0, depth + 1);
                input.unlimit(before);
                plan.finished(pair);
                if (pair[1] == null && message != null) {
                    pair[1] = message.empty();
                }
                entries.put(pair[0], pair[1]);
            } catch (RuntimeException bad) {
                throw BadRecord.of(bad).item(entries.size());
            }
        };
    }

    @SuppressWarnings("unchecked")
    private Map<Object, Object> entries(Object[] row, int slot) {
        if (row[slot] == NO_ENTRIES) {
            budget.charge(MAP);
            row[slot] = new LinkedHashMap<>();
        }
        return (Map<Object, Object>) row[slot];
    }

    private static void requireWireType(Field field, int tag, WireInput input) {
        ProtobufNested.requireWireType(field.type().wireType(), tag, input);
    }
}
