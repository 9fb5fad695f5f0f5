package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Reads records whose value is exactly one JSON object in UTF-8 (RFC 8259), with or without Confluent's header.
 *
 * <p>Spark's {@code from_json} would lose data silently: it stops after the first object, takes the last of two fields
 * with the same name, and replaces invalid UTF-8.
 */
final class JsonReader extends RecordReader {
    private final JsonValue.Record record;
    private final boolean lenient;
    private final LeftOut.Rule unknown;
    private final Writers<String> writers;
    private final LeftOut leftOut = LeftOut.ofThread();
    private int lastId = -1;

    /** Creates a reader of records, which have a header if {@code writers} is not null. */
    JsonReader(JsonValue.Record record, boolean lenient, LeftOut.Rule unknown, Writers<String> writers) {
        super(writers);
        this.record = record;
        this.lenient = lenient;
        this.unknown = unknown;
        this.writers = writers;
    }

    @Override
    protected InternalRow value(byte[] bytes, int from, int schemaId) {
        if (writers != null && schemaId != lastId) {
            // JSON can be read without its schema, but the schema's id must be registered.
            writers.schema(schemaId);
            lastId = schemaId;
        }
        try (JsonInput input = new JsonInput(text(bytes, from), budget, lenient)) {
            input.leftOut = leftOut;
            input.unknown = unknown;
            if (input.parser.nextToken() != JsonToken.START_OBJECT) {
                throw new BadRecord("not a JSON object");
            }
            InternalRow row = record.read(input);
            long end = input.parser.currentLocation().getCharOffset();
            if (!ends(input)) {
                throw new BadRecord("something follows the JSON object after character " + end);
            }
            return row;
        } catch (IOException | RuntimeException bad) {
            throw JsonInput.reason(bad);
        }
    }

    private static boolean ends(JsonInput input) {
        try {
            return input.parser.nextToken() == null;
        } catch (IOException garbage) {
            return false;
        }
    }
}
