package io.lakefeed.decode;

import io.lakefeed.protobuf.Malformed;
import io.lakefeed.protobuf.ProtoFile;
import io.lakefeed.protobuf.ProtoMessage.Field;
import io.lakefeed.protobuf.WireInput;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads a scalar value as the reader's type; allows conversions without loss, such as from int32 to long. */
interface ProtobufValue {
    /** Reads a value, after its tag. */
    Object read(WireInput input);

    /** Returns the zero value of the type, which has only zero bytes in the encoding of every type. */
    default Object zero() {
        return read(new WireInput().over(new byte[8], 0));
    }

    /**
     * Returns the reader of a field's values as {@code target}.
     *
     * @throws BadRecord if values of the field do not fit the type
     */
    static ProtobufValue of(Field field, DataType target) {
        ProtobufValue found = switch (field.type()) {
            case DOUBLE -> target == DataTypes.DoubleType ? input -> Double.longBitsToDouble(input.fixed64()) : null;
            case FLOAT -> ofFloat(target);
            case BOOL -> ofBool(target);
            case STRING -> target instanceof StringType ? ProtobufValue::text : null;
            case BYTES -> target == DataTypes.BinaryType ? ProtobufValue::bytes : null;
            case ENUM -> ofEnum(field, target);
            case MESSAGE -> null;
            default -> ofInteger(field, target);
        };
        if (found == null) {
            throw misfit(field, target);
        }
        return found;
    }

    static BadRecord misfit(Field field, DataType target) {
        String repeated = field.presence() == ProtoFile.Presence.REPEATED ? "repeated " : "";
        String type = field.message() == null ? field.type().wordOf() : field.message().fullName();
        return new BadRecord(AvroPlan.MISMATCH + "field " + field.name() + " is " + repeated + type
                + ", which cannot become " + target.simpleString());
    }

    private static ProtobufValue ofFloat(DataType target) {
        if (target == DataTypes.FloatType) {
            return input -> Float.intBitsToFloat(input.fixed32());
        }
        return target == DataTypes.DoubleType ? input -> (double) Float.intBitsToFloat(input.fixed32()) : null;
    }

    private static ProtobufValue ofBool(DataType target) {
        if (target == DataTypes.BooleanType) {
            return input -> input.varint() != 0;
        }
        return target instanceof StringType ? input -> UTF8String.fromString(String.valueOf(input.varint() != 0)) : null;
    }

    /** Reads a value of an integer type as a long; for uint64 and fixed64, as the long with the same bits. */
    interface Whole {
        long read(WireInput input);
    }

    private static ProtobufValue ofInteger(Field field, DataType target) {
        Whole whole = switch (field.type()) {
            case INT32 -> input -> (int) input.varint();
            case SINT32 -> input -> {
                int bits = (int) input.varint();
                return (bits >>> 1) ^ -(bits & 1);
            };
            case UINT32 -> input -> input.varint() & 0xFFFFFFFFL;
            case FIXED32 -> input -> input.fixed32() & 0xFFFFFFFFL;
            case SFIXED32 -> WireInput::fixed32;
            case SINT64 -> WireInput::zigzag;
            case FIXED64, SFIXED64 -> WireInput::fixed64;
            default -> WireInput::varint;
        };
        boolean unsigned = switch (field.type()) {
            case UINT64, FIXED64 -> true;
            default -> false;
        };
        boolean narrow = switch (field.type()) {
            case INT32, SINT32, SFIXED32 -> true;
            default -> false;
        };
        if (target == DataTypes.IntegerType && narrow) {
            return input -> (int) whole.read(input);
        }
        if (target == DataTypes.LongType) {
            return input -> {
                long value = whole.read(input);
                if (unsigned && value < 0) {
                    throw new Malformed("a number of 2^63 or more does not fit bigint");
                }
                return value;
            };
        }
        if (target == DataTypes.FloatType && !unsigned) {
            return input -> (float) whole.read(input);
        }
        if (target == DataTypes.DoubleType) {
            return input -> unsigned ? exact(whole.read(input)).doubleValue() : (double) whole.read(input);
        }
        if (target instanceof DecimalType type) {
            // Create no BigInteger for small numbers, because a packed field can have a million values in a megabyte.
            long small = type.scale() == 0 ? (long) Math.pow(10, Math.min(type.precision(), 18)) : 0;
            return input -> {
                long bits = whole.read(input);
                if (bits >= 0 && bits < small) {
                    return Decimal.apply(bits, type.precision(), 0);
                }
                BigDecimal value = unsigned ? exact(bits) : BigDecimal.valueOf(bits);
                if (value.precision() + type.scale() > type.precision()) {
                    throw new Malformed("the number does not fit " + type.simpleString());
                }
                return Decimal.apply(value, type.precision(), type.scale());
            };
        }
        // A number that is the key of a map becomes text, because keys of maps are text in Avro.
        return target instanceof StringType
                ? input -> {
                    long bits = whole.read(input);
                    return UTF8String.fromString(unsigned ? Long.toUnsignedString(bits) : Long.toString(bits));
                }
                : null;
    }

    private static BigDecimal exact(long unsigned) {
        return new BigDecimal(Long.toUnsignedString(unsigned));
    }

    /** Reads an enum's value as its symbol, or as its number if the schema has no symbol for the number. */
    private static ProtobufValue ofEnum(Field field, DataType target) {
        if (target == DataTypes.IntegerType) {
            return input -> (int) input.varint();
        }
        if (!(target instanceof StringType)) {
            return null;
        }
        Map<Integer, UTF8String> symbols = new HashMap<>();
        field.symbols().forEach(each -> symbols.putIfAbsent(each.number(), UTF8String.fromString(each.name())));
        return input -> {
            int number = (int) input.varint();
            UTF8String symbol = symbols.get(number);
            return symbol != null ? symbol : SmallNumbers.text(number);
        };
    }

    /** Reads text; the text refers to the record's bytes without a copy. */
    static UTF8String text(WireInput input) {
        int length = input.length();
        UTF8String text = UTF8String.fromBytes(input.bytes(), input.take(length), length);
        if (!SparkApi.isUtf8(text)) {
            throw new Malformed("text that is not UTF-8 before byte " + input.position());
        }
        return text;
    }

    private static byte[] bytes(WireInput input) {
        int length = input.length();
        int from = input.take(length);
        return Arrays.copyOfRange(input.bytes(), from, from + length);
    }

    /** Numbers as text. Small numbers share their texts, because a record can have very many of them. */
    static final class SmallNumbers {
        private static final UTF8String[] SHARED = new UTF8String[128];

        static {
            for (int number = 0; number < SHARED.length; number++) {
                SHARED[number] = UTF8String.fromString(Integer.toString(number));
            }
        }

        private SmallNumbers() {}

        static UTF8String text(int number) {
            return number >= 0 && number < SHARED.length
                    ? SHARED[number]
                    : UTF8String.fromBytes(Integer.toString(number).getBytes(StandardCharsets.ISO_8859_1));
        }
    }
}
