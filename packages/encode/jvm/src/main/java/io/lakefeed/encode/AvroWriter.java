package io.lakefeed.encode;

import java.math.BigInteger;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Writes Spark's rows as Avro records, without creating Avro's own objects.
 *
 * <p>A writer is compiled once for a schema and a row's type. The bytes are those of {@code to_avro}, but {@code
 * to_avro} by default refuses times before 1900.
 */
final class AvroWriter {
    private static final long MILLI = 1_000;
    private static final byte[] ONES = {-1};
    private static final byte[] ZEROS = {0};

    private final Struct record;

    /** Writes one value of a row or an array, at an ordinal. */
    private interface Value {
        void write(SpecializedGetters from, int at, WireOutput out);
    }

    private record Struct(Value[] values, int[] columns) {
        void write(SpecializedGetters row, WireOutput out) {
            for (int number = 0; number < values.length; number++) {
                values[number].write(row, columns[number], out);
            }
        }
    }

    /** Reports that a column cannot be written by {@link AvroWriter}. */
    static final class Unfit extends RuntimeException {
        private static final long serialVersionUID = 1L;

        private Unfit(String field, DataType type, Schema schema) {
            super("field " + field + ": " + type.simpleString() + " as " + schema.getType());
        }
    }

    /**
     * Creates a writer of rows of one type.
     *
     * @throws Unfit if a column cannot be written with the schema
     */
    AvroWriter(Schema schema, StructType type) {
        record = struct(schema, type);
    }

    void write(SpecializedGetters row, WireOutput out) {
        record.write(row, out);
    }

    /** Returns the writer of a field, which can be a union of a type and null. */
    private static Value field(String name, Schema schema, DataType type) {
        int absent = absent(schema);
        if (absent < 0) {
            Value value = value(name, schema, type);
            return (from, at, out) -> {
                if (from.isNullAt(at)) {
                    throw new IllegalArgumentException(ProtobufWriter.NULL_MARK + name);
                }
                value.write(from, at, out);
            };
        }
        Value value = value(name, schema.getTypes().get(1 - absent), type);
        return (from, at, out) -> {
            if (from.isNullAt(at)) {
                out.zigzag(absent);
            } else {
                out.zigzag(1 - absent);
                value.write(from, at, out);
            }
        };
    }

    /** Returns null's index in a union of null and one type; -1 for any other schema. */
    private static int absent(Schema schema) {
        if (schema.getType() != Schema.Type.UNION || schema.getTypes().size() != 2) {
            return -1;
        }
        List<Schema> types = schema.getTypes();
        boolean first = types.get(0).getType() == Schema.Type.NULL;
        boolean second = types.get(1).getType() == Schema.Type.NULL;
        return first == second ? -1 : first ? 0 : 1;
    }

    private static Value value(String name, Schema schema, DataType type) {
        Unfit unfit = new Unfit(name, type, schema);
        return switch (schema.getType()) {
            case BOOLEAN -> require(type == DataTypes.BooleanType, unfit, (from, at, out) ->
                    out.varint(from.getBoolean(at) ? 1 : 0));
            case INT -> whole(type, unfit);
            case LONG -> wide(schema, type, unfit);
            case FLOAT -> require(type == DataTypes.FloatType, unfit, (from, at, out) ->
                    out.fixed32(Float.floatToRawIntBits(from.getFloat(at))));
            case DOUBLE -> require(type == DataTypes.DoubleType, unfit, (from, at, out) ->
                    out.fixed64(Double.doubleToRawLongBits(from.getDouble(at))));
            case STRING -> require(type instanceof StringType, unfit, (from, at, out) ->
                    text(from.getUTF8String(at), out));
            case ENUM -> require(type instanceof StringType, unfit, symbols(name, schema));
            case BYTES -> type instanceof DecimalType decimal
                    ? decimal(schema, decimal, unfit)
                    : require(type == DataTypes.BinaryType, unfit, (from, at, out) -> bytes(from.getBinary(at), out));
            case FIXED -> type instanceof DecimalType decimal
                    ? decimal(schema, decimal, unfit)
                    : require(type == DataTypes.BinaryType, unfit, fixed(name, schema.getFixedSize()));
            case ARRAY -> items(name, schema, type, unfit);
            case MAP -> entries(name, schema, type, unfit);
            case RECORD -> {
                require(type instanceof StructType, unfit, null);
                Struct struct = struct(schema, (StructType) type);
                int size = ((StructType) type).size();
                yield (from, at, out) -> struct.write(from.getStruct(at, size), out);
            }
            default -> throw unfit;
        };
    }

    private static void text(UTF8String text, WireOutput out) {
        out.zigzag(text.numBytes());
        out.raw(text);
    }

    private static void bytes(byte[] bytes, WireOutput out) {
        out.zigzag(bytes.length);
        out.raw(bytes);
    }

    private static Value require(boolean fits, Unfit unfit, Value value) {
        if (!fits) {
            throw unfit;
        }
        return value;
    }

    private static Value whole(DataType type, Unfit unfit) {
        if (type == DataTypes.ByteType) {
            return (from, at, out) -> out.zigzag(from.getByte(at));
        }
        if (type == DataTypes.ShortType) {
            return (from, at, out) -> out.zigzag(from.getShort(at));
        }
        return require(type == DataTypes.IntegerType || type == DataTypes.DateType, unfit, (from, at, out) ->
                out.zigzag(from.getInt(at)));
    }

    private static Value wide(Schema schema, DataType type, Unfit unfit) {
        LogicalType meaning = schema.getLogicalType();
        boolean plain = type == DataTypes.LongType;
        boolean instant = type == DataTypes.TimestampType;
        boolean local = type == DataTypes.TimestampNTZType;
        boolean micros = instant && meaning instanceof LogicalTypes.TimestampMicros
                || local && meaning instanceof LogicalTypes.LocalTimestampMicros;
        boolean millis = instant && (meaning == null || meaning instanceof LogicalTypes.TimestampMillis)
                || local && meaning instanceof LogicalTypes.LocalTimestampMillis;
        if (millis) {
            return (from, at, out) -> out.zigzag(Math.floorDiv(from.getLong(at), MILLI));
        }
        return require(plain || micros, unfit, (from, at, out) -> out.zigzag(from.getLong(at)));
    }

    private static Value symbols(String name, Schema schema) {
        Map<UTF8String, Integer> numbers = new HashMap<>();
        schema.getEnumSymbols().forEach(symbol -> numbers.put(UTF8String.fromString(symbol), numbers.size()));
        return (from, at, out) -> {
            Integer number = numbers.get(from.getUTF8String(at));
            if (number == null) {
                throw new IllegalArgumentException("field " + name + " has no symbol " + from.getUTF8String(at));
            }
            out.zigzag(number);
        };
    }

    private static Value fixed(String name, int size) {
        return (from, at, out) -> {
            byte[] bytes = from.getBinary(at);
            if (bytes.length != size) {
                throw new IllegalArgumentException(
                        "field " + name + " has " + bytes.length + " bytes, but the schema requires " + size);
            }
            out.raw(bytes);
        };
    }

    private static Value decimal(Schema schema, DecimalType type, Unfit unfit) {
        int precision = type.precision();
        int scale = type.scale();
        require(LogicalTypes.decimal(precision, scale).equals(schema.getLogicalType()), unfit, null);
        if (schema.getType() == Schema.Type.BYTES) {
            return (from, at, out) -> bytes(unscaled(from, at, precision, scale).toByteArray(), out);
        }
        int size = schema.getFixedSize();
        return (from, at, out) -> {
            BigInteger unscaled = unscaled(from, at, precision, scale);
            byte[] bytes = unscaled.toByteArray();
            for (int missing = size - bytes.length; missing > 0; missing--) {
                out.raw(unscaled.signum() < 0 ? ONES : ZEROS);
            }
            out.raw(bytes);
        };
    }

    private static BigInteger unscaled(SpecializedGetters from, int at, int precision, int scale) {
        return from.getDecimal(at, precision, scale).toJavaBigDecimal().setScale(scale).unscaledValue();
    }

    private static Value items(String name, Schema schema, DataType type, Unfit unfit) {
        if (!(type instanceof ArrayType array)) {
            throw unfit;
        }
        Value item = field(name, schema.getElementType(), array.elementType());
        return (from, at, out) -> {
            ArrayData items = from.getArray(at);
            if (items.numElements() > 0) {
                out.zigzag(items.numElements());
                for (int each = 0; each < items.numElements(); each++) {
                    item.write(items, each, out);
                }
            }
            out.zigzag(0);
        };
    }

    private static Value entries(String name, Schema schema, DataType type, Unfit unfit) {
        if (!(type instanceof MapType map) || !(map.keyType() instanceof StringType)) {
            throw unfit;
        }
        Value value = field(name, schema.getValueType(), map.valueType());
        return (from, at, out) -> {
            MapData entries = from.getMap(at);
            if (entries.numElements() > 0) {
                out.zigzag(entries.numElements());
                for (int each = 0; each < entries.numElements(); each++) {
                    text(entries.keyArray().getUTF8String(each), out);
                    value.write(entries.valueArray(), each, out);
                }
            }
            out.zigzag(0);
        };
    }

    private static Struct struct(Schema schema, StructType type) {
        List<Schema.Field> fields = schema.getFields();
        Value[] values = new Value[fields.size()];
        int[] columns = new int[fields.size()];
        int found = 0;
        for (int number = 0; number < values.length; number++) {
            Schema.Field field = fields.get(number);
            int column = List.of(type.fieldNames()).indexOf(field.name());
            if (column < 0) {
                int absent = absent(field.schema());
                require(absent >= 0, new Unfit(field.name(), type, field.schema()), null);
                values[number] = (from, at, out) -> out.zigzag(absent);
                continue;
            }
            columns[number] = column;
            values[number] = field(field.name(), field.schema(), type.fields()[column].dataType());
            found++;
        }
        if (found < type.size()) {
            throw new Unfit(schema.getName(), type, schema);
        }
        return new Struct(values, columns);
    }
}
