package io.lakefeed.encode;

import io.lakefeed.protobuf.ProtoFile.Presence;
import io.lakefeed.protobuf.ProtoMessage.Field;
import io.lakefeed.protobuf.ProtoMessage;
import io.lakefeed.protobuf.ProtoType;
import io.lakefeed.protobuf.SchemaException;
import io.lakefeed.protobuf.WireInput;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Writes rows as Protobuf messages, from columns with the types that the decoder returns. A writer is compiled once for
 * a message type and a row's type; columns and fields match by name.
 */
final class ProtobufWriter {
    /** The error of a row with a null begins with this text, by which Python recognises it. */
    static final String NULL_MARK = "lakefeed: null where the schema allows none: field ";

    private static final String TIMESTAMP = "google.protobuf.Timestamp";
    private static final long MICROS = 1_000_000;

    private final List<Part> parts = new ArrayList<>();

    /** Writes one value of a field, without its tag. */
    private interface Value {
        void write(Object value, WireOutput out);
    }

    /** Writes one column as a field. */
    private interface Part {
        void write(SpecializedGetters row, WireOutput out);
    }

    /**
     * Creates a writer of {@code message}.
     *
     * @throws SchemaException if the columns do not fit the message's fields
     */
    ProtobufWriter(ProtoMessage message, StructType type) {
        Map<String, Field> fields = new HashMap<>();
        message.fields().forEach(field -> fields.put(field.name(), field));
        for (int column = 0; column < type.size(); column++) {
            StructField have = type.fields()[column];
            Field field = fields.remove(have.name());
            if (field == null) {
                throw new SchemaException("the message " + message.fullName() + " has no field " + have.name());
            }
            parts.add(part(field, column, have.dataType()));
        }
        for (Field field : fields.values()) {
            if (field.presence() == Presence.REQUIRED) {
                throw new SchemaException("the rows have no column for the required field " + field.name());
            }
        }
    }

    void write(SpecializedGetters row, WireOutput out) {
        for (Part part : parts) {
            part.write(row, out);
        }
    }

    private static Part part(Field field, int column, DataType type) {
        if (field.isMap()) {
            return mapPart(field, column, type);
        }
        if (field.presence() == Presence.REPEATED) {
            if (!(type instanceof ArrayType array)) {
                throw misfit(field, type);
            }
            return repeatedPart(field, column, array.elementType());
        }
        Value value = value(field, type);
        boolean implicit = field.presence() == Presence.IMPLICIT;
        return (row, out) -> {
            if (row.isNullAt(column)) {
                if (implicit || field.presence() == Presence.REQUIRED) {
                    throw new IllegalArgumentException(NULL_MARK + field.name());
                }
                return;
            }
            tagged(field, value, row.get(column, type), out);
        };
    }

    private static Part repeatedPart(Field field, int column, DataType items) {
        Value value = value(field, items);
        boolean packed = field.type().packable();
        return (row, out) -> {
            if (row.isNullAt(column)) {
                return;
            }
            ArrayData array = row.getArray(column);
            WireOutput together = new WireOutput();
            for (int at = 0; at < array.numElements(); at++) {
                if (array.isNullAt(at)) {
                    throw new IllegalArgumentException(NULL_MARK + field.name());
                }
                if (packed) {
                    value.write(array.get(at, items), together);
                } else {
                    tagged(field, value, array.get(at, items), out);
                }
            }
            if (packed && array.numElements() > 0) {
                out.tag(field.number(), WireInput.LENGTH);
                out.lengthAnd(together);
            }
        };
    }

    private static Part mapPart(Field field, int column, DataType type) {
        if (!(type instanceof MapType map)) {
            throw misfit(field, type);
        }
        Field key = field.message().fields().get(0);
        Field item = field.message().fields().get(1);
        Value keys = keys(field, key, map.keyType());
        Value values = value(item, map.valueType());
        return (row, out) -> {
            if (row.isNullAt(column)) {
                return;
            }
            MapData entries = row.getMap(column);
            for (int at = 0; at < entries.numElements(); at++) {
                if (entries.valueArray().isNullAt(at)) {
                    throw new IllegalArgumentException(NULL_MARK + field.name());
                }
                WireOutput entry = new WireOutput();
                tagged(key, keys, entries.keyArray().get(at, map.keyType()), entry);
                tagged(item, values, entries.valueArray().get(at, map.valueType()), entry);
                out.tag(field.number(), WireInput.LENGTH);
                out.lengthAnd(entry);
            }
        };
    }

    /** Returns the writer of a map's keys. In rows, keys are text; the writer checks texts of numbers and booleans. */
    private static Value keys(Field map, Field key, DataType type) {
        Value value = value(key, type);
        return (of, out) -> {
            String text = of.toString();
            try {
                if (key.type() == ProtoType.BOOL && !text.equals("true") && !text.equals("false")) {
                    throw new IllegalArgumentException("a boolean is true or false");
                }
                value.write(of, out);
            } catch (IllegalArgumentException unfit) {
                throw new IllegalArgumentException("field " + map.name() + ": a key is no " + key.type().wordOf(), unfit);
            }
        };
    }

    private static void tagged(Field field, Value value, Object of, WireOutput out) {
        if (field.delimited()) {
            out.tag(field.number(), WireInput.START_GROUP);
            value.write(of, out);
            out.tag(field.number(), WireInput.END_GROUP);
        } else {
            out.tag(field.number(), field.type().wireType());
            value.write(of, out);
        }
    }

    private static Value value(Field field, DataType type) {
        if (field.type() == ProtoType.MESSAGE) {
            return message(field, type);
        }
        boolean text = type instanceof StringType;
        return switch (field.type()) {
            case DOUBLE -> (value, out) -> out.fixed64(Double.doubleToRawLongBits(number(value, field).doubleValue()));
            case FLOAT -> (value, out) -> out.fixed32(Float.floatToRawIntBits(number(value, field).floatValue()));
            case BOOL -> (value, out) -> out.varint(Boolean.parseBoolean(value.toString()) ? 1 : 0);
            case STRING -> require(text, field, type, (value, out) -> out.lengthAnd(((UTF8String) value).getBytes()));
            case BYTES -> (value, out) -> out.lengthAnd((byte[]) value);
            case ENUM -> require(text, field, type, symbols(field));
            case SINT32, SINT64 -> (value, out) -> out.zigzag(whole(value, field));
            case FIXED32, SFIXED32 -> (value, out) -> out.fixed32((int) whole(value, field));
            case FIXED64, SFIXED64 -> (value, out) -> out.fixed64(whole(value, field));
            default -> (value, out) -> out.varint(whole(value, field));
        };
    }

    private static Value require(boolean fits, Field field, DataType type, Value value) {
        if (!fits) {
            throw misfit(field, type);
        }
        return value;
    }

    private static Value message(Field field, DataType type) {
        ProtoMessage message = field.message();
        if (type instanceof StructType struct) {
            ProtobufWriter writer = new ProtobufWriter(message, struct);
            return framed(field, (value, out) -> writer.write((InternalRow) value, out));
        }
        if (message.fullName().equals(TIMESTAMP) && (type == DataTypes.TimestampType || type == DataTypes.TimestampNTZType)) {
            return framed(field, (value, out) -> {
                long micros = (long) value;
                out.tag(1, WireInput.VARINT);
                out.varint(Math.floorDiv(micros, MICROS));
                out.tag(2, WireInput.VARINT);
                out.varint(Math.floorMod(micros, MICROS) * 1_000);
            });
        }
        boolean single = message.fullName().startsWith("google.protobuf.") && message.name().endsWith("Value")
                && message.fields().size() == 1 && message.fields().get(0).presence() == Presence.IMPLICIT;
        if (single) {
            Field inner = message.fields().get(0);
            Value value = value(inner, type);
            return framed(field, (of, out) -> tagged(inner, value, of, out));
        }
        throw misfit(field, type);
    }

    private static Value framed(Field field, Value content) {
        if (field.delimited()) {
            return content;
        }
        return (value, out) -> {
            WireOutput inner = new WireOutput();
            content.write(value, inner);
            out.lengthAnd(inner);
        };
    }

    private static Value symbols(Field field) {
        Map<String, Integer> numbers = new HashMap<>();
        field.symbols().forEach(each -> numbers.put(each.name(), each.number()));
        return (value, out) -> {
            String symbol = value.toString();
            Integer number = numbers.get(symbol);
            if (number == null) {
                try {
                    number = Integer.valueOf(symbol);
                } catch (NumberFormatException neither) {
                    throw new IllegalArgumentException("field " + field.name() + " has no symbol " + symbol, neither);
                }
            }
            out.varint(number);
        };
    }

    private static Number number(Object value, Field field) {
        if (value instanceof Number number) {
            return number;
        }
        throw new IllegalArgumentException("field " + field.name() + ": " + value + " is not a number");
    }

    /** Checks that a whole number fits the field's type, and returns its bits. */
    private static long whole(Object value, Field field) {
        BigInteger number = value instanceof Decimal decimal
                ? decimal.toJavaBigDecimal().toBigIntegerExact()
                : new BigInteger(value.toString());
        int bits = field.type().name().endsWith("32") ? 32 : 64;
        boolean unsigned = switch (field.type()) {
            case UINT32, UINT64, FIXED32, FIXED64 -> true;
            default -> false;
        };
        boolean fits = unsigned ? number.signum() >= 0 && number.bitLength() <= bits : number.bitLength() < bits;
        if (!fits) {
            throw new IllegalArgumentException(
                    "field " + field.name() + ": " + number + " does not fit " + field.type().wordOf());
        }
        return number.longValue();
    }

    private static SchemaException misfit(Field field, DataType type) {
        String required = field.message() == null ? field.type().wordOf() : field.message().fullName();
        return new SchemaException("field " + field.name() + ": " + type.simpleString() + " cannot become " + required);
    }
}
