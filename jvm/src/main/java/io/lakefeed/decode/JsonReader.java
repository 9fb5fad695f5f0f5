package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.Arrays;
import java.util.Set;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads records whose value is exactly one JSON object in UTF-8 (RFC 8259), with or without Confluent's header.
 *
 * <p>Spark's {@code from_json} would lose data silently: it ignores all bytes after the first object, all but the last
 * of several fields with the same name, and invalid UTF-8.
 */
final class JsonReader extends RecordReader {
    private final JsonValue.Record record;
    private final boolean lenient;
    private final LeftOut.Rule unknown;
    /** The type of the last column if it collects fields without a column; else null. */
    private final DataType kept;

    private final Writers<String> writers;
    private final LeftOut leftOut = LeftOut.ofThread();
    private int lastId = -1;

    /**
     * Creates a reader of records, which have a header if {@code writers} is not null.
     *
     * @param whole whether the only column is the value itself, which may be any JSON
     */
    JsonReader(
            StructType columns,
            Schema schema,
            TextValue.Rules rules,
            LeftOut.Rule unknown,
            boolean whole,
            Writers<String> writers) {
        super(writers);
        int fields = columns.size() - 1;
        this.kept = whole || unknown.isKept() ? columns.apply(fields).dataType() : null;
        StructType ofRecord = kept == null ? columns : new StructType(Arrays.copyOf(columns.fields(), fields));
        this.record = whole ? null : JsonValue.record(ofRecord, schema, rules);
        this.lenient = rules.lenient();
        this.unknown = unknown;
        this.writers = writers;
    }

    @Override
    protected InternalRow value(byte[] bytes, int from, int schemaId) {
        if (writers != null && schemaId != lastId) {
            // JSON can be read without its schema, but the registry must have the schema's id.
            writers.schema(schemaId);
            lastId = schemaId;
        }
        String text = text(bytes, from);
        try (JsonInput input = new JsonInput(text, budget, lenient)) {
            input.leftOut = unknown.isKept() ? null : leftOut;
            input.unknown = unknown;
            JsonToken first = input.parser.nextToken();
            if (first == null || (record != null && first != JsonToken.START_OBJECT)) {
                throw new BadRecord(record == null ? "no JSON value" : "not a JSON object");
            }
            InternalRow row = record == null ? new GenericInternalRow(new Object[] {json(input)}) : record.read(input);
            long end = input.parser.currentLocation().getCharOffset();
            if (!ends(input)) {
                String of = record == null ? "value" : "object";
                throw new BadRecord("something follows the JSON " + of + " after character " + end);
            }
            return record == null || kept == null ? row : with(row, text, input.remainder);
        } catch (IOException | RuntimeException bad) {
            throw JsonInput.reason(bad);
        }
    }

    private Object json(JsonInput input) throws IOException {
        return SparkApi.isVariant(kept) ? input.variant() : input.json();
    }

    /** Returns a row whose last column has the document's fields with these names, or null if {@code names} is null. */
    private InternalRow with(InternalRow row, String document, Set<String> names) throws IOException {
        Object[] values = Arrays.copyOf(((GenericInternalRow) row).values(), row.numFields() + 1);
        if (names != null) {
            budget.charge(2L * document.length());
            try (JsonInput input = new JsonInput(document, budget, lenient)) {
                UTF8String fields = input.fields(names);
                values[row.numFields()] = SparkApi.isVariant(kept) ? JsonInput.variant(fields, budget) : fields;
            }
        }
        return new GenericInternalRow(values);
    }

    private static boolean ends(JsonInput input) {
        try {
            return input.parser.nextToken() == null;
        } catch (IOException garbage) {
            return false;
        }
    }
}
