package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonFactoryBuilder;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.StreamWriteConstraints;
import com.fasterxml.jackson.core.StreamWriteFeature;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.temporal.ChronoUnit;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Values as JSON in the shape that Spark's {@code to_json} gives them: records and maps are objects, bytes are
 * Base64, dates and moments ISO 8601, not-a-number is text, a union of several types is an object with one member.
 */
final class AvroJson {
    private static final JsonFactory FACTORY = new JsonFactoryBuilder()
            // A key that comes twice would be lost without a word.
            .enable(StreamWriteFeature.STRICT_DUPLICATE_DETECTION)
            // The decoder counts the depth already.
            .streamWriteConstraints(
                    StreamWriteConstraints.builder().maxNestingDepth(Integer.MAX_VALUE).build())
            .build();

    private AvroJson() {}

    /** The next value, read by {@code step}, as JSON. */
    static UTF8String text(AvroStep step, BoundedDecoder in) {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        try (JsonGenerator json = FACTORY.createGenerator(text)) {
            step.write(in, json);
        } catch (IOException refused) {
            throw new BadRecord("not JSON: " + refused.getMessage());
        }
        return UTF8String.fromBytes(text.toByteArray());
    }

    /** Writes one value of Spark's internal form that is neither an array nor a map nor a struct. */
    static void write(JsonGenerator json, Object value, DataType type) throws IOException {
        if (type instanceof DateType) {
            json.writeString(LocalDate.ofEpochDay((Integer) value).toString());
        } else if (type instanceof TimestampType) {
            json.writeString(DateTimeFormatter.ISO_INSTANT.format(moment((Long) value)));
        } else if (type instanceof TimestampNTZType) {
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
