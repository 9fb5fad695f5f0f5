package io.lakefeed.decode;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Resolver;
import org.apache.avro.Resolver.Action;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Compiles a writer's schema and a reader's schema into steps, which read the writer's bytes as Spark's values.
 *
 * <p>Avro's {@link Resolver} decides how fields match, and the values are the same as from {@code from_avro}. Unlike
 * {@code from_avro}, it also uses the unit of a timestamp and the scale of a decimal in the writer's schema.
 */
final class AvroPlan {
    private static final GenericData GENERIC = new GenericData();
    /** The beginning of the error if the writer's schema and the reader's schema do not fit. */
    static final String MISMATCH = "the writer's schema does not fit the reader's: ";

    /** The most steps of a plan: a writer's unions can multiply branches, even with a small reader's schema. */
    private static final int MOST_STEPS = 20 * AvroTypes.SchemaLimits.MOST_COLUMNS;

    /** The steps of records that become JSON, by action. The step of a recursive type contains itself. */
    private final Map<Action, AvroNested.OfRecord> records = new IdentityHashMap<>();

    /** The number of arrays and maps around the current field: inside them, a value can occur any number of times. */
    private int containers;

    private int steps;

    private AvroPlan() {}

    /**
     * Returns the plan for reading records of {@code writer} as {@code reader}, into the columns of {@link
     * AvroTypes#of}.
     *
     * @throws AvroRuntimeException if a default of the reader does not fit its field's type, or the plan is too large
     */
    static AvroStep of(Schema writer, Schema reader) {
        return new AvroPlan().step(Resolver.resolve(writer, reader, GENERIC), Set.of());
    }

    /** Returns an action's step. {@code open}: the names of the enclosing records; null inside JSON. */
    private AvroStep step(Action action, Set<String> open) {
        if (++steps > MOST_STEPS) {
            throw new AvroRuntimeException("reading it takes more than " + MOST_STEPS + " steps");
        }
        Schema reader = action.reader;
        boolean again = open != null && reader.getType() == Schema.Type.RECORD && open.contains(reader.getFullName());
        if (again) {
            return new AvroNested.AsJson(step(action, null));
        }
        return switch (action.type) {
            case DO_NOTHING, PROMOTE -> single(action.writer, reader);
            case ENUM -> symbols((Resolver.EnumAdjust) action);
            case CONTAINER -> {
                containers++;
                AvroStep inside = step(((Resolver.Container) action).elementAction, open);
                containers--;
                yield reader.getType() == Schema.Type.ARRAY
                        ? new AvroNested.OfArray(inside, AvroSkip.isFree(action.writer.getElementType()))
                        : new AvroNested.OfMap(inside);
            }
            case RECORD -> record((Resolver.RecordAdjust) action, open);
            case WRITER_UNION -> union((Resolver.WriterUnion) action, open);
            case READER_UNION -> {
                Resolver.ReaderUnion union = (Resolver.ReaderUnion) action;
                yield branch(reader, union.firstMatch, union.actualAction, open);
            }
            case ERROR -> new AvroObjects.Refusal(MISMATCH + action.toString().replaceFirst("^Found ", "found "));
            case SKIP -> throw new IllegalStateException("a field that is skipped has no value");
        };
    }

    private static AvroStep single(Schema writer, Schema reader) {
        DataType type = AvroTypes.single(reader);
        return switch (reader.getType()) {
            case NULL -> new AvroObjects.OfNull();
            case BOOLEAN -> new AvroNumbers.OfBoolean(type);
            case INT -> new AvroNumbers.OfInt(type);
            case LONG -> type instanceof DecimalType decimal
                    ? new AvroObjects.OfLongDecimal(decimal)
                    : moment(writer, reader, type);
            case FLOAT -> new AvroNumbers.OfFloat(type, writer.getType());
            case DOUBLE -> new AvroNumbers.OfDouble(type, writer.getType());
            case STRING -> new AvroObjects.OfString();
            default -> type instanceof DecimalType decimal
                    ? new AvroObjects.OfDecimal(writer, scale(writer, decimal), decimal)
                    : new AvroObjects.OfBytes(writer);
        };
    }

    /** Returns the step of a long, which converts the unit of time if both schemas name a unit. */
    private static AvroStep moment(Schema writer, Schema reader, DataType type) {
        boolean micros = type == DataTypes.TimestampType || type == DataTypes.TimestampNTZType;
        long required = micros ? 1_000 : nanos(reader);
        long written = nanos(writer) == 0 ? nanos(reader) : nanos(writer);
        if (required == 0 || written == 0) {
            return new AvroNumbers.OfLong(type, writer.getType(), 1);
        }
        if (written < required) {
            return new AvroObjects.Refusal(MISMATCH + "found " + writer.getLogicalType().getName()
                    + ", which is finer than " + reader.getLogicalType().getName());
        }
        return new AvroNumbers.OfLong(type, writer.getType(), written / required);
    }

    /** Returns the unit of a schema's time or timestamp, in nanoseconds; 0 if the schema names no unit. */
    private static long nanos(Schema schema) {
        LogicalType logical = schema.getLogicalType();
        String name = logical == null ? "" : logical.getName();
        return name.endsWith("-millis") ? 1_000_000 : name.endsWith("-micros") ? 1_000 : name.endsWith("-nanos") ? 1 : 0;
    }

    private static int scale(Schema writer, DecimalType reader) {
        return writer.getLogicalType() instanceof LogicalTypes.Decimal decimal ? decimal.getScale() : reader.scale();
    }

    private static AvroStep symbols(Resolver.EnumAdjust action) {
        List<String> symbols = action.reader.getEnumSymbols();
        UTF8String[] adjusted = new UTF8String[action.adjustments.length];
        for (int at = 0; at < adjusted.length; at++) {
            int adjustment = action.adjustments[at];
            adjusted[at] = adjustment < 0 ? null : UTF8String.fromString(symbols.get(adjustment));
        }
        return new AvroObjects.OfEnum(adjusted, action.writer.getEnumSymbols());
    }

    private AvroStep record(Resolver.RecordAdjust action, Set<String> open) {
        if (open == null && records.containsKey(action)) {
            return records.get(action);
        }
        AvroNested.OfRecord record = new AvroNested.OfRecord(containers > 0);
        if (open == null) {
            records.put(action, record);
        }
        Set<String> inside = open == null ? null : AvroTypes.with(open, action.reader);
        int defaults = action.readerOrder.length - action.firstDefault;
        AvroStep[] steps = new AvroStep[action.fieldActions.length + defaults];
        int[] places = new int[steps.length];
        String[] written = new String[steps.length];
        int next = 0;
        for (int at = 0; at < action.fieldActions.length; at++) {
            Action field = action.fieldActions[at];
            written[at] = action.writer.getFields().get(at).name();
            if (field.type == Action.Type.SKIP) {
                places[at] = AvroNested.OfRecord.NOWHERE;
                steps[at] = new AvroNested.Skipped(AvroSkip.of(field.writer));
            } else {
                places[at] = action.readerOrder[next++].pos();
                steps[at] = step(field, inside);
            }
        }
        for (int at = action.fieldActions.length; at < steps.length; at++) {
            Schema.Field field = action.readerOrder[next];
            places[at] = field.pos();
            written[at] = field.name();
            steps[at] = constant(field.schema(), action.defaults[next++ - action.firstDefault], inside);
        }
        String[] names = action.reader.getFields().stream().map(Schema.Field::name).toArray(String[]::new);
        record.become(steps, places, names, written);
        return record;
    }

    private static AvroStep constant(Schema schema, Object value, Set<String> open) {
        ByteArrayOutputStream encoded = new ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(encoded, null);
        try {
            new GenericDatumWriter<>(schema, GENERIC).write(value, encoder);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
        AvroStep step = new AvroPlan().step(Resolver.resolve(schema, schema, GENERIC), open);
        return new AvroObjects.Constant(encoded.toByteArray(), step);
    }

    private AvroStep union(Resolver.WriterUnion union, Set<String> open) {
        AvroStep[] branches = new AvroStep[union.actions.length];
        for (int at = 0; at < branches.length; at++) {
            branches[at] = union.unionEquiv
                    ? branch(union.reader, at, union.actions[at], open)
                    : step(union.actions[at], open);
        }
        return new AvroNested.OfUnion(branches);
    }

    /** Returns the step for a writer's value that matches a branch of a reader's union; it returns the union's type. */
    private AvroStep branch(Schema union, int index, Action action, Set<String> open) {
        List<Schema> types = AvroTypes.types(union);
        Schema branch = union.getTypes().get(index);
        if (branch.getType() == Schema.Type.NULL || action.type == Action.Type.ERROR) {
            return step(action, open);
        }
        DataType number = AvroTypes.number(types);
        if (number == DataTypes.LongType) {
            return new AvroNumbers.OfLong(DataTypes.LongType, action.writer.getType(), 1);
        }
        if (number != null) {
            return new AvroNumbers.OfDouble(DataTypes.DoubleType, action.writer.getType());
        }
        AvroStep step = step(action, open);
        return types.size() == 1 ? step : new AvroNested.OfMember(types.size(), types.indexOf(branch), step, containers > 0);
    }
}
