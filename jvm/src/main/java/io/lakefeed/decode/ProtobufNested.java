package io.lakefeed.decode;

import io.lakefeed.protobuf.Malformed;
import io.lakefeed.protobuf.ProtoMessage.Field;
import io.lakefeed.protobuf.ProtoMessage;
import io.lakefeed.protobuf.WireInput;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Reads a field whose values are messages. A message becomes a row or JSON text; a message of some well-known types
 * becomes a single value.
 */
final class ProtobufNested {
    private static final String KNOWN = "google.protobuf.";
    private static final Set<String> WRAPPERS = Set.of(
            KNOWN + "DoubleValue", KNOWN + "FloatValue", KNOWN + "Int64Value", KNOWN + "UInt64Value",
            KNOWN + "Int32Value", KNOWN + "UInt32Value", KNOWN + "BoolValue", KNOWN + "StringValue",
            KNOWN + "BytesValue");
    private static final int NANOS = 1_000_000_000;
    /** Protobuf's range of a timestamp: the years 1 to 9999. */
    private static final long FIRST_SECOND = -62_135_596_800L;

    private static final long LAST_SECOND = 253_402_300_799L;
    private static final StructType INSTANT = new StructType()
            .add("seconds", DataTypes.LongType, false)
            .add("nanos", DataTypes.IntegerType, false);

    /** Stands for an unfinished message that is present but has no bytes. */
    private static final Object EMPTY = new Object();

    private final Field field;
    private final ProtobufPart part;
    private final MemoryBudget budget;
    /** The shared value of empty messages: a record of two million bytes can have a million of them. */
    private Object empty;

    private ProtobufNested(Field field, ProtobufPart part, MemoryBudget budget) {
        this.field = field;
        this.part = part;
        this.budget = budget;
    }

    /**
     * Returns the reader of a message field as the reader's type.
     *
     * @throws BadRecord if the messages do not fit the type
     */
    static ProtobufNested of(Field field, DataType target, Schema schema, MemoryBudget budget) {
        return new ProtobufNested(field, part(field, target, schema, budget), budget);
    }

    private static ProtobufPart part(Field field, DataType target, Schema schema, MemoryBudget budget) {
        ProtoMessage message = field.message();
        if (target instanceof StringType && !isWrapper(message)) {
            return new ProtobufJson(message, budget);
        }
        if (target instanceof StructType struct && schema.getType() == Schema.Type.RECORD) {
            return new Rows(ProtobufPlan.of(message, schema, struct, budget), GenericInternalRow::new);
        }
        boolean isTime = target == DataTypes.TimestampType || target == DataTypes.TimestampNTZType || target == DataTypes.LongType;
        if (isTimestamp(message) && isTime) {
            return new Rows(ProtobufPlan.of(message, record(INSTANT), INSTANT, budget), ProtobufNested::micros);
        }
        if (isWrapper(message)) {
            StructType type = new StructType().add("value", target, false);
            return new Rows(ProtobufPlan.of(message, record(type), type, budget), row -> row[0]);
        }
        throw ProtobufValue.misfit(field, target);
    }

    static boolean isTimestamp(ProtoMessage message) {
        return message.fullName().equals(KNOWN + "Timestamp");
    }

    static boolean isWrapper(ProtoMessage message) {
        return WRAPPERS.contains(message.fullName());
    }

    /** Reads a message or, if {@code before} is not null, a further piece of that unfinished message. */
    Object read(WireInput input, int tag, Object before, int depth) {
        int outer = begin(input, tag, depth);
        if (before == null && !field.delimited() && input.atEnd()) {
            end(input, outer);
            return EMPTY;
        }
        Object unfinished = before == null || before == EMPTY ? begun() : before;
        part.read(input, unfinished, field.delimited() ? field.number() : 0, depth);
        end(input, outer);
        return unfinished;
    }

    /** Reads a message that comes in one piece, and returns its value. */
    Object whole(WireInput input, int tag, int depth) {
        int outer = begin(input, tag, depth);
        if (!field.delimited() && input.atEnd()) {
            end(input, outer);
            return empty();
        }
        Object unfinished = begun();
        part.read(input, unfinished, field.delimited() ? field.number() : 0, depth);
        end(input, outer);
        return part.finished(unfinished);
    }

    private int begin(WireInput input, int tag, int depth) {
        WireInput.requireDepth(depth);
        requireWireType(field.delimited() ? WireInput.START_GROUP : WireInput.LENGTH, tag, input);
        return field.delimited() ? 0 : input.limit();
    }

    private void end(WireInput input, int outer) {
        if (!field.delimited()) {
            input.unlimit(outer);
        }
    }

    private Object begun() {
        budget.charge(part.cost());
        return part.begun();
    }

    Object empty() {
        if (empty == null) {
            empty = part.finished(part.begun());
        }
        return empty;
    }

    Object finished(Object unfinished) {
        return unfinished == EMPTY ? empty() : part.finished(unfinished);
    }

    static void requireWireType(int required, int tag, WireInput input) {
        if ((tag & 7) != required) {
            throw new Malformed("number " + (tag >>> 3) + " has the wire type " + (tag & 7) + " instead of " + required
                    + " before byte " + input.position());
        }
    }

    /** Reads messages as rows, and converts a finished row to a value. */
    private record Rows(ProtobufPlan plan, Maker maker) implements ProtobufPart {
        interface Maker {
            Object of(Object[] row);
        }

        @Override
        public Object begun() {
            return plan.fresh();
        }

        @Override
        public void read(WireInput input, Object unfinished, int group, int depth) {
            plan.read(input, (Object[]) unfinished, group, depth);
        }

        @Override
        public Object finished(Object unfinished) {
            return maker.of(plan.finished((Object[]) unfinished));
        }

        @Override
        public int cost() {
            return plan.cost();
        }
    }

    /**
     * Returns an Avro record with the names of {@code type}. A plan needs only the schemas of nested fields, so only
     * the last field has one.
     *
     * @param last the schema of the last field
     */
    static Schema record(StructType type, Schema last) {
        List<Schema.Field> fields = new ArrayList<>();
        for (StructField field : type.fields()) {
            boolean isLast = fields.size() == type.size() - 1;
            fields.add(new Schema.Field(field.name(), isLast ? last : Schema.create(Schema.Type.STRING)));
        }
        return Schema.createRecord("Parts", null, null, false, fields);
    }

    private static Schema record(StructType type) {
        return record(type, Schema.create(Schema.Type.STRING));
    }

    private static Object micros(Object[] instant) {
        long seconds = (long) instant[0];
        int nanos = (int) instant[1];
        requireInRange(seconds, nanos);
        return seconds * 1_000_000 + nanos / 1_000;
    }

    static void requireInRange(long seconds, int nanos) {
        if (nanos < 0 || nanos >= NANOS || seconds < FIRST_SECOND || seconds > LAST_SECOND) {
            throw new Malformed("a timestamp outside the years 1 to 9999, or with nanoseconds outside 0 to 999999999");
        }
    }

    /** Reads a message inside a message. The inner message can come in several pieces, which Protobuf merges. */
    interface ProtobufPart {
        /** Returns a new unfinished message. */
        Object begun();

        /**
         * Reads a piece of the message.
         *
         * @param group the number of the group whose end also ends the piece; 0 if the piece ends with the input
         */
        void read(WireInput input, Object unfinished, int group, int depth);

        /** Returns the value, in Spark's form, of a message that was read to its end. */
        Object finished(Object unfinished);

        /** Returns the bytes of memory of an empty message. */
        int cost();
    }
}
