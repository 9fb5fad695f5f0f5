package io.lakefeed.decode;

import java.util.List;
import java.util.Set;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;

/**
 * Limits the size of a schema, because producers may register any. The limits are those of {@code
 * lakefeed.records.schema.avro}. They apply to the columns and not to the text: a few named types that use each other
 * can mean millions of columns.
 */
final class SchemaLimits {
    /** Columns and fields inside them, at all levels. */
    static final int MOST_COLUMNS = 10_000;

    /** Levels of records, arrays, maps and unions inside each other. */
    static final int DEEPEST = 100;

    private int columns;

    private SchemaLimits() {}

    /**
     * Returns the schema itself.
     *
     * @throws AvroRuntimeException if it has too many columns or levels
     */
    static Schema bounded(Schema schema) {
        new SchemaLimits().count(schema, Set.of(), 1);
        return schema;
    }

    private void count(Schema schema, Set<String> open, int depth) {
        if (depth > DEEPEST) {
            throw new AvroRuntimeException("it has more than " + DEEPEST + " levels inside each other");
        }
        switch (schema.getType()) {
            case ARRAY -> count(schema.getElementType(), open, depth + 1);
            case MAP -> count(schema.getValueType(), open, depth + 1);
            case UNION -> {
                List<Schema> types = AvroTypes.types(schema);
                int more = types.size() > 1 ? 1 : 0;
                for (Schema each : types) {
                    add(more);
                    count(each, open, depth + more);
                }
            }
            case RECORD -> {
                // A recursive record is one column of JSON.
                if (!open.contains(schema.getFullName())) {
                    Set<String> inside = AvroTypes.with(open, schema);
                    for (Schema.Field field : schema.getFields()) {
                        add(1);
                        count(field.schema(), inside, depth + 1);
                    }
                }
            }
            default -> {}
        }
    }

    private void add(int more) {
        columns += more;
        if (columns > MOST_COLUMNS) {
            throw new AvroRuntimeException(
                    "it means more than " + MOST_COLUMNS + " columns, fields inside columns counted");
        }
    }
}
