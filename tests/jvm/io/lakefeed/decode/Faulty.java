package io.lakefeed.decode;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;

/** A format for tests whose decoder fails in the way that the record names. */
final class Faulty extends RecordReader {
    Faulty() {
        super(null);
    }

    @Override
    protected InternalRow value(byte[] record, int from, int schemaId) {
        return switch (new String(record)) {
            case "memory" -> {
                List<long[]> kept = new ArrayList<>();
                while (true) {
                    kept.add(new long[10_000_000]);
                }
            }
            case "stack" -> value(record, from, schemaId);
            case "defect" -> throw new IllegalStateException("a value that must stay hidden");
            default -> new GenericInternalRow(new Object[0]);
        };
    }
}
