package io.lakefeed.decode;

import java.util.HashMap;
import java.util.Map;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * Reads Avro with a plan ({@link AvroPlan}) for each writer's schema. The row of a result is valid until the next
 * record, as in {@code from_avro}.
 */
final class AvroReader extends RecordReader {
    private final Schema readerSchema;
    private final Acceptance accept;
    private final boolean wrapped;
    private final DecodedRow row;
    private final BoundedDecoder decoder = new BoundedDecoder(budget);
    private final Writers<Schema> writers;
    private final Map<Integer, AvroStep> plans = new HashMap<>();

    /** The plan of the last record; for records without a header, the only plan. */
    private AvroStep plan;

    private int planOf;
    private boolean takesEmpty;

    AvroReader(Schema readerSchema, DataType type, Writers<Schema> writers, Acceptance accept) {
        super(writers);
        this.accept = accept;
        this.readerSchema = readerSchema;
        this.wrapped = !(type instanceof StructType);
        this.row = new DecodedRow(type instanceof StructType struct ? struct.size() : 1);
        this.writers = writers;
    }

    /** Creates a reader of records without a header, all written with {@code writerSchema}. */
    AvroReader(Schema readerSchema, DataType type, Schema writerSchema) {
        this(readerSchema, type, null, Acceptance.ANY);
        this.plan = compiled(writerSchema);
        this.takesEmpty = AvroSkip.isFree(writerSchema);
    }

    /** Returns whether values of the writer's schema take no bytes, such as a record without fields. */
    @Override
    boolean takesEmpty() {
        return takesEmpty;
    }

    private AvroStep compiled(Schema writerSchema) {
        try {
            return accept.plan(AvroTypes.SchemaLimits.bounded(writerSchema), readerSchema);
        } catch (AvroRuntimeException unfit) {
            return new AvroObjects.Refusal(AvroPlan.MISMATCH + unfit.getMessage());
        } catch (RuntimeException | StackOverflowError unfit) {
            // For example, a default does not fit its field. A plan that refuses each record is stored, so that the
            // schema is not compiled again for each record.
            return new AvroObjects.Refusal(AvroPlan.MISMATCH + "it cannot be resolved to it");
        }
    }

    @Override
    protected InternalRow value(byte[] record, int from, int schemaId) {
        if (plan == null || planOf != schemaId) {
            plan = plans.get(schemaId);
            if (plan == null) {
                plan = compiled(writers.schema(schemaId));
                plans.put(schemaId, plan);
            }
            planOf = schemaId;
        }
        InternalRow value = value(decoder.over(record, from));
        if (decoder.remaining() > 0) {
            throw new BadRecord(decoder.remaining() + " byte(s) left over after byte " + decoder.position());
        }
        return value;
    }

    private InternalRow value(BoundedDecoder in) {
        row.reset();
        if (wrapped) {
            plan.read(in, row, 0);
            return row.isNullAt(0) ? null : row;
        }
        if (plan instanceof AvroNested.OfRecord record) {
            record.fill(in, row);
            return row;
        }
        return (InternalRow) plan.read(in);
    }
}
