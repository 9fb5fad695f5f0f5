package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Values that are exactly one JSON object in UTF-8 (RFC 8259), bare or behind Confluent's header.
 *
 * <p>Spark's {@code from_json} stops reading after the first object, takes the last of two fields of one name, and
 * replaces what is not UTF-8: each loses data without a word.
 */
final class JsonReader extends RecordReader {
    private static final byte[] BYTE_ORDER_MARK = {(byte) 0xEF, (byte) 0xBB, (byte) 0xBF};

    private final JsonValue.Record record;
    private final boolean lenient;
    private final Writers<String> writers;
    private int lastId = -1;

    /** A reader of records; with a header if {@code writers} are given. */
    JsonReader(JsonValue.Record record, boolean lenient, Writers<String> writers) {
        super(writers);
        this.record = record;
        this.lenient = lenient;
        this.writers = writers;
    }

    @Override
    InternalRow value(byte[] bytes, int from, int schemaId) {
        if (writers != null && schemaId != lastId) {
            // The value says itself what it holds; but an id that nobody has registered is somebody's mistake.
            writers.schema(schemaId);
            lastId = schemaId;
        }
        try (JsonInput input = new JsonInput(text(bytes, from), budget, lenient)) {
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

    /** The text of a value; RFC 8259 lets a reader pass over a byte order mark. */
    static String text(byte[] bytes, int from) {
        int start = from;
        while (start - from < BYTE_ORDER_MARK.length && start < bytes.length && bytes[start] == BYTE_ORDER_MARK[start - from]) {
            start++;
        }
        start = start - from == BYTE_ORDER_MARK.length ? start : from;
        if (!UTF8String.fromBytes(bytes, start, bytes.length - start).isValid()) {
            throw new BadRecord("not UTF-8");
        }
        return new String(bytes, start, bytes.length - start, StandardCharsets.UTF_8);
    }

    private static boolean ends(JsonInput input) {
        try {
            return input.parser.nextToken() == null;
        } catch (IOException garbage) {
            return false;
        }
    }
}
