package io.lakefeed.decode;

import io.lakefeed.protobuf.Malformed;
import io.lakefeed.protobuf.ProtoMessage;
import io.lakefeed.protobuf.ProtoMessage.Field;
import io.lakefeed.protobuf.WireInput;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * A message inside a message: a row, or one value where Protobuf's well-known types stand for one.
 *
 * @param field whose value it is
 * @param plan how its fields are read
 * @param made makes the value of its finished fields
 */
record ProtobufNested(Field field, ProtobufPlan plan, Function<Object[], Object> made) {
    private static final String KNOWN = "google.protobuf.";
    private static final Set<String> WRAPPERS = Set.of(
            KNOWN + "DoubleValue", KNOWN + "FloatValue", KNOWN + "Int64Value", KNOWN + "UInt64Value",
            KNOWN + "Int32Value", KNOWN + "UInt32Value", KNOWN + "BoolValue", KNOWN + "StringValue",
            KNOWN + "BytesValue");
    private static final int NANOS = 1_000_000_000;
    /** 0001-01-01 and the end of 9999, the range that Protobuf gives a timestamp. */
    private static final long FIRST_SECOND = -62_135_596_800L;

    private static final long LAST_SECOND = 253_402_300_799L;
    private static final StructType INSTANT = new StructType()
            .add("seconds", DataTypes.LongType, false)
            .add("nanos", DataTypes.IntegerType, false);

    /** How a message field becomes a value of the reader's type. */
    static ProtobufNested of(Field field, DataType target, Schema schema) {
        ProtoMessage message = field.message();
        if (target instanceof StructType struct && schema.getType() == Schema.Type.RECORD) {
            return new ProtobufNested(field, ProtobufPlan.of(message, schema, struct), GenericInternalRow::new);
        }
        if (isTimestamp(message) && isTime(target)) {
            return new ProtobufNested(field, ProtobufPlan.of(message, record(INSTANT), INSTANT), ProtobufNested::micros);
        }
        if (isWrapper(message)) {
            StructType type = new StructType().add("value", target, false);
            return new ProtobufNested(field, ProtobufPlan.of(message, record(type), type), row -> row[0]);
        }
        throw ProtobufValue.misfit(field, target);
    }

    /** Whether messages of a type become JSON text. */
    static boolean isText(ProtoMessage message, DataType target) {
        return target instanceof StringType && !isWrapper(message);
    }

    static boolean isTimestamp(ProtoMessage message) {
        return message.fullName().equals(KNOWN + "Timestamp");
    }

    static boolean isWrapper(ProtoMessage message) {
        return WRAPPERS.contains(message.fullName());
    }

    /** The unfinished fields of an empty message. */
    Object[] fresh() {
        return plan.fresh();
    }

    /** Reads a message, or the next piece of one; {@code before} is what is there of it, or null. */
    Object[] read(WireInput input, int tag, Object[] before, int depth) {
        WireInput.requireDepth(depth);
        Object[] row = before == null ? plan.fresh() : before;
        if (field.delimited()) {
            requireWireType(field, WireInput.START_GROUP, tag, input);
            plan.read(input, row, field.number(), depth);
        } else {
            requireWireType(field, WireInput.LENGTH, tag, input);
            int outer = input.limit("field " + field.name());
            plan.read(input, row, 0, depth);
            input.unlimit(outer);
        }
        return row;
    }

    /** The value of what has been read. */
    Object finished(Object[] row) {
        return made.apply(plan.finished(row));
    }

    static void requireWireType(Field field, int wanted, int tag, WireInput input) {
        if ((tag & 7) != wanted) {
            throw new Malformed("field " + field.name() + " (" + field.number() + ") has the wire type " + (tag & 7)
                    + " instead of " + wanted + " before byte " + input.position());
        }
    }

    /**
     * An Avro record with the names of {@code type}; a plan needs its fields' schemas only where they are nested.
     *
     * @param last schema of the last field
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

    private static boolean isTime(DataType type) {
        return type instanceof TimestampType || type instanceof TimestampNTZType || type instanceof LongType;
    }

    private static Object micros(Object[] instant) {
        long seconds = (long) instant[0];
        int nanos = (int) instant[1];
        if (nanos < 0 || nanos >= NANOS || seconds < FIRST_SECOND || seconds > LAST_SECOND) {
            throw new Malformed("a timestamp out of range: " + seconds + " s " + nanos + " ns");
        }
        return seconds * 1_000_000 + nanos / 1_000;
    }
}
