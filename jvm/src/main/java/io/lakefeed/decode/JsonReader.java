package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.core.io.JsonEOFException;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Values that are exactly one JSON object in UTF-8 (RFC 8259), bare or behind Confluent's header.
 *
 * <p>Spark's {@code from_json} stops reading after the first object, takes the last of two fields of one name, and
 * replaces what is not UTF-8: each loses data without a word. {@code NaN} and {@code Infinity} are let through, since
 * Python's and Spark's own writers produce them.
 */
final class JsonReader extends RecordReader {
    static final JsonFactory FACTORY = JsonFactory.builder()
            .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
            .enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS)
            .disable(StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION)
            .build();

    private final JsonValue.Record record;
    private final Writers<String> writers;
    private int lastId = -1;

    /** A reader of records; with a header if {@code writers} are given. */
    JsonReader(JsonValue.Record record, Writers<String> writers) {
        super(writers);
        this.record = record;
        this.writers = writers;
    }

    @Override
    InternalRow value(byte[] bytes, int from, int schemaId) {
        if (writers != null && schemaId != lastId) {
            // The value says itself what it holds; but an id that nobody has registered is somebody's mistake.
            writers.schema(schemaId);
            lastId = schemaId;
        }
        int length = bytes.length - from;
        if (!UTF8String.fromBytes(bytes, from, length).isValid()) {
            throw new BadRecord("not UTF-8");
        }
        try (JsonParser parser = FACTORY.createParser(bytes, from, length)) {
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                throw new BadRecord("not a JSON object");
            }
            InternalRow row = record.read(parser);
            long end = from + parser.currentLocation().getByteOffset();
            if (parser.nextToken() != null) {
                throw new BadRecord("something follows the JSON object after byte " + end);
            }
            return row;
        } catch (JsonEOFException cut) {
            throw new BadRecord("truncated JSON: " + bytes.length + " bytes");
        } catch (JsonProcessingException invalid) {
            throw new BadRecord("not JSON: " + invalid.getOriginalMessage().split("[:(\n]", 2)[0].strip()
                    + (invalid.getLocation() == null ? "" : " at byte " + (from + invalid.getLocation().getByteOffset())));
        } catch (IOException impossible) {
            throw new BadRecord("not JSON: " + impossible.getMessage());
        }
    }
}
