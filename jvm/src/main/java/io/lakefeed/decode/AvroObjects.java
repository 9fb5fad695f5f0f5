package io.lakefeed.decode;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.util.Arrays;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The steps for values that are objects in Spark (text, bytes, symbols of enums, decimals), for defaults, and for
 * fields whose two schemas do not fit.
 */
final class AvroObjects {
    private AvroObjects() {}

    private abstract static class Single extends AvroStep {
        private final DataType type;

        Single(DataType type) {
            this.type = type;
        }

        @Override
        final void write(BoundedDecoder in, JsonText json) {
            json.value(read(in), type);
        }
    }

    static final class OfNull extends Single {
        OfNull() {
            super(DataTypes.NullType);
        }

        @Override
        Object read(BoundedDecoder in) {
            return null;
        }
    }

    static final class OfString extends Single {
        OfString() {
            super(DataTypes.StringType);
        }

        @Override
        byte common() {
            return STRING;
        }

        @Override
        Object read(BoundedDecoder in) {
            return in.readString();
        }

        @Override
        void read(BoundedDecoder in, DecodedRow row, int field) {
            row.put(field, in.readString());
        }
    }

    /** Reads a value of Avro's type fixed or bytes; only bytes begin with their length. */
    static final class OfBytes extends Single {
        private final int size;

        OfBytes(Schema writer) {
            super(DataTypes.BinaryType);
            this.size = sizeOf(writer);
        }

        @Override
        Object read(BoundedDecoder in) {
            return bytes(in, size);
        }
    }

    private static int sizeOf(Schema writer) {
        return writer.getType() == Schema.Type.FIXED ? writer.getFixedSize() : -1;
    }

    private static byte[] bytes(BoundedDecoder in, int size) {
        return size < 0 ? in.readBytes() : in.readFixed(size);
    }

    static final class OfEnum extends Single {
        private final UTF8String[] symbols;
        private final List<String> written;

        /** Creates the step of an enum; {@code symbols} has, by the writer's symbols, the reader's symbol or null. */
        OfEnum(UTF8String[] symbols, List<String> written) {
            super(DataTypes.StringType);
            this.symbols = symbols;
            this.written = written;
        }

        @Override
        Object read(BoundedDecoder in) {
            int index = in.readIndex(symbols.length, "an enum");
            if (symbols[index] == null) {
                throw new BadRecord(AvroPlan.MISMATCH + "its enum has no symbol " + written.get(index) + " and no default");
            }
            return symbols[index];
        }
    }

    /** Reads a decimal that is stored as Avro's type fixed or bytes; only bytes begin with their length. */
    static final class OfDecimal extends Single {
        private final int size;
        private final AvroDecimal decimal;

        OfDecimal(Schema writer, int writtenScale, DecimalType type) {
            super(type);
            this.size = sizeOf(writer);
            this.decimal = new AvroDecimal(writtenScale, type);
        }

        @Override
        Object read(BoundedDecoder in) {
            return decimal.of(bytes(in, size), in);
        }
    }

    static final class OfLongDecimal extends Single {
        private final AvroDecimal decimal;

        OfLongDecimal(DecimalType type) {
            super(type);
            this.decimal = new AvroDecimal(type.scale(), type);
        }

        @Override
        Object read(BoundedDecoder in) {
            return decimal.of(in.readLong(), in);
        }
    }

    /** Returns the default of a reader's field, which all records share. */
    static final class Constant extends AvroStep {
        private final byte[] encoded;
        private final AvroStep step;
        private Object value;
        private boolean known;
        private byte[] text;

        Constant(byte[] encoded, AvroStep step) {
            this.encoded = encoded;
            this.step = step;
        }

        @Override
        Object read(BoundedDecoder in) {
            if (!known) {
                value = step.read(BoundedDecoder.ofTrusted(encoded));
                known = true;
            }
            return value;
        }

        @Override
        void read(BoundedDecoder in, DecodedRow row, int field) {
            row.update(field, read(in));
        }

        @Override
        void write(BoundedDecoder in, JsonText json) {
            if (text == null) {
                text = BoundedDecoder.ofTrusted(encoded).json(step).getBytes();
            }
            json.raw(text);
        }
    }

    /** Refuses a record that has a value in a field whose two schemas do not fit. */
    static final class Refusal extends AvroStep {
        private final String why;

        Refusal(String why) {
            this.why = why;
        }

        @Override
        Object read(BoundedDecoder in) {
            throw new BadRecord(why);
        }

        @Override
        void write(BoundedDecoder in, JsonText json) {
            throw new BadRecord(why);
        }
    }

    /**
     * Reads a decimal from the two's complement of its unscaled value, highest byte first. Refuses a number that the
     * reader's scale would round.
     *
     * <p>Numbers of more than {@value #MOST_BYTES} bytes are refused, so that the cost is limited whatever the writer's
     * scale is.
     */
    record AvroDecimal(int writtenScale, DecimalType type) {
        /** About 2,400 digits: no realistic change of scale shortens a longer number to 38 digits. */
        private static final int MOST_BYTES = 1_024;

        /** The memory, in bytes, for a number that does not fit into a long, with intermediate objects. */
        private static final int LARGE = 320;
        /** The most digits that always fit into a long. */
        private static final int LONG_DIGITS = 18;

        private static final long[] POWERS = new long[LONG_DIGITS + 1];

        static {
            POWERS[0] = 1;
            for (int at = 1; at < POWERS.length; at++) {
                POWERS[at] = POWERS[at - 1] * 10;
            }
        }

        Decimal of(byte[] bytes, BoundedDecoder in) {
            if (bytes.length == 0) {
                throw new BadRecord("a decimal of 0 bytes");
            }
            int first = 0;
            // Skip leading bytes that only repeat the sign.
            while (first < bytes.length - 1 && bytes[first] == bytes[first + 1] >> 7 && (bytes[first] == 0 || bytes[first] == -1)) {
                first++;
            }
            int length = bytes.length - first;
            if (length > Long.BYTES) {
                return large(first == 0 ? bytes : Arrays.copyOfRange(bytes, first, bytes.length), in);
            }
            long unscaled = bytes[first];
            for (int at = first + 1; at < bytes.length; at++) {
                unscaled = unscaled << 8 | bytes[at] & 0xFF;
            }
            return of(unscaled, in);
        }

        Decimal of(long unscaled, BoundedDecoder in) {
            int more = type.scale() - writtenScale;
            if (unscaled == 0) {
                return decimal(0);
            }
            if (more == 0) {
                return decimal(unscaled);
            }
            if (more < 0) {
                // A long has at most 19 digits, so it ends with at most 18 zeros, unless it is 0.
                if (-more > LONG_DIGITS || unscaled % POWERS[-more] != 0) {
                    throw inexact();
                }
                return decimal(unscaled / POWERS[-more]);
            }
            if (more <= LONG_DIGITS) {
                long product = unscaled * POWERS[more];
                if (Math.multiplyHigh(unscaled, POWERS[more]) == product >> 63) {
                    return decimal(product);
                }
            }
            return large(BigInteger.valueOf(unscaled), in);
        }

        private Decimal decimal(long unscaled) {
            if (type.precision() <= LONG_DIGITS && (unscaled >= POWERS[type.precision()] || unscaled <= -POWERS[type.precision()])) {
                throw tooLarge();
            }
            return Decimal.apply(unscaled, type.precision(), type.scale());
        }

        private Decimal large(byte[] bytes, BoundedDecoder in) {
            if (bytes.length > MOST_BYTES) {
                throw new BadRecord("a decimal of more than " + MOST_BYTES + " bytes");
            }
            return large(new BigInteger(bytes), in);
        }

        private Decimal large(BigInteger unscaled, BoundedDecoder in) {
            in.charge(LARGE);
            // Each decimal zero at the end of a number needs more than three bits, so this number has too few zeros at
            // its end. Without this check, computing 10 to the power of the scale could take minutes.
            if (3L * (writtenScale - type.scale()) > unscaled.bitLength()) {
                throw inexact();
            }
            BigDecimal exact;
            try {
                exact = new BigDecimal(unscaled, writtenScale).setScale(type.scale(), RoundingMode.UNNECESSARY);
            } catch (ArithmeticException rounded) {
                throw inexact();
            }
            if (exact.precision() > type.precision()) {
                throw tooLarge();
            }
            return Decimal.apply(exact, type.precision(), type.scale());
        }

        private BadRecord inexact() {
            return new BadRecord("a decimal has more than the " + type.scale() + " digits after the point that its type has");
        }

        private BadRecord tooLarge() {
            return new BadRecord("a decimal has more digits than " + type.simpleString() + " holds");
        }
    }
}
