package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonFactoryBuilder;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.StreamWriteConstraints;
import com.fasterxml.jackson.core.StreamWriteFeature;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.temporal.ChronoUnit;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Writes values as JSON, in the form of Spark's {@code to_json}: records and maps are objects, bytes are Base64, dates
 * and timestamps are ISO 8601, NaN is text, and a union of several types is an object with one member.
 */
final class AvroJson {
    private static final JsonFactory FACTORY = new JsonFactoryBuilder()
            .disable(StreamWriteFeature.AUTO_CLOSE_CONTENT)
            // Jackson need not limit the depth, because the decoder does.
            .streamWriteConstraints(
                    StreamWriteConstraints.builder().maxNestingDepth(Integer.MAX_VALUE).build())
            .rootValueSeparator((String) null)
            .build();

    /** The largest buffer, in bytes, that is kept for the next value. */
    private static final int LARGE = 1 << 20;

    /** The bytes of memory that a value takes besides its text. */
    private static final int VALUE = 80;

    private AvroJson() {}

    /** Reads the next value with {@code step} and returns it as JSON; charges the memory of the text to {@code in}. */
    static UTF8String text(AvroStep step, BoundedDecoder in) {
        if (in.json == null) {
            in.json = new Text();
        }
        in.charge(VALUE);
        try {
            return in.json.of(step, in);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }

    /** A JSON generator and its buffer; they are reused, because creating them costs more than writing most values. */
    static final class Text {
        private Buffer buffer = new Buffer();
        private JsonGenerator json;

        private UTF8String of(AvroStep step, BoundedDecoder in) throws IOException {
            if (json == null) {
                json = FACTORY.createGenerator(buffer);
            }
            boolean whole = false;
            buffer.charged = in;
            try {
                step.write(in, json);
                json.flush();
                whole = true;
                return UTF8String.fromBytes(buffer.toByteArray());
            } finally {
                buffer.charged = null;
                if (!whole) {
                    json.close(); // The generator stopped in the middle of a value.
                    json = null;
                }
                if (buffer.size() > LARGE) {
                    buffer = new Buffer();
                    json = null;
                }
                buffer.reset();
            }
        }
    }

    private static final class Buffer extends ByteArrayOutputStream {
        /** The decoder to charge for the current value; null between values. */
        private BoundedDecoder charged;

        @Override
        public void write(byte[] source, int from, int length) {
            if (charged != null) {
                charged.charge(length);
                super.write(source, from, length);
            }
        }
    }

    /** Writes a value of Spark that is neither an array nor a map nor a struct. */
    static void write(JsonGenerator json, Object value, DataType type) throws IOException {
        if (type == DataTypes.DateType) {
            json.writeString(LocalDate.ofEpochDay((Integer) value).toString());
        } else if (type == DataTypes.TimestampType) {
            json.writeString(DateTimeFormatter.ISO_INSTANT.format(moment((Long) value)));
        } else if (type == DataTypes.TimestampNTZType) {
            LocalDateTime local = LocalDateTime.ofInstant(moment((Long) value), ZoneOffset.UTC);
            json.writeString(DateTimeFormatter.ISO_LOCAL_DATE_TIME.format(local));
        } else if (value instanceof Decimal decimal) {
            json.writeNumber(decimal.toJavaBigDecimal());
        } else if (value instanceof byte[] bytes) {
            json.writeBinary(bytes);
        } else if (value instanceof UTF8String text) {
            json.writeString(text.toString());
        } else {
            json.writePOJO(value);
        }
    }

    private static Instant moment(long micros) {
        return Instant.EPOCH.plus(micros, ChronoUnit.MICROS);
    }
}
