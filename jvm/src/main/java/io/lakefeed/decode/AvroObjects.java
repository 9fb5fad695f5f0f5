package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Steps for single values that are objects in Spark (text, bytes, symbols of enums, decimals), for defaults and for
 * mismatches.
 */
final class AvroObjects {
    private AvroObjects() {}

    private abstract static class Single extends AvroStep {
        private final DataType type;

        Single(DataType type) {
            this.type = type;
        }

        @Override
        final void write(BoundedDecoder in, JsonGenerator json) throws IOException {
            AvroJson.write(json, read(in), type);
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

    /** Bytes: {@code size} of them, or as many as the length before them says. */
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

        /** Creates the step with the reader's symbol for each of the writer's, null where there is none. */
        OfEnum(UTF8String[] symbols, List<String> written) {
            super(DataTypes.StringType);
            this.symbols = symbols;
            this.written = written;
        }

        @Override
        Object read(BoundedDecoder in) {
            int index = in.readIndex(symbols.length, "an enum");
            if (symbols[index] == null) {
                throw AvroPlan.mismatch("its enum has no symbol " + written.get(index) + " and no default");
            }
            return symbols[index];
        }
    }

    /** A decimal in bytes: {@code size} of them, or as many as the length before them says. */
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

    /** A decimal that Spark has written as a long. */
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

    /** A reader's default: the same for all records. */
    static final class Constant extends AvroStep {
        private final byte[] encoded;
        private final AvroStep step;
        private Object value;
        private boolean known;
        private String text;

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
        void write(BoundedDecoder in, JsonGenerator json) throws IOException {
            if (text == null) {
                text = AvroJson.text(step, BoundedDecoder.ofTrusted(encoded)).toString();
            }
            json.writeRawValue(text);
        }
    }

    /** A place where the schemas do not fit: an error of the records that reach it, and of no others. */
    static final class Mismatch extends AvroStep {
        private final String why;

        Mismatch(String why) {
            this.why = why;
        }

        @Override
        Object read(BoundedDecoder in) {
            throw AvroPlan.mismatch(why);
        }

        @Override
        void write(BoundedDecoder in, JsonGenerator json) {
            throw AvroPlan.mismatch(why);
        }
    }
}
