package io.lakefeed.decode;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads records for one thread, by a plan ({@link AvroPlan}) for each writer's schema. The result, and the row inside
 * it, are reused for the next record, as {@code from_avro} reuses its row.
 */
final class AvroReader {
    private static final int LONGEST_ERROR = 1_000;
    private static final UTF8String EMPTY = UTF8String.fromString("empty: 0 bytes");

    /** The only thread that may call {@link #read}. */
    final Thread owner = Thread.currentThread();

    private final Schema readerSchema;
    private final boolean wrapped;
    private final DecodedRow row;
    private final Object[] result = new Object[3];
    private final InternalRow resultRow = new GenericInternalRow(result);
    private final BoundedDecoder decoder = new BoundedDecoder();

    private final Registry registry;
    private final Duration patience;
    private final Map<Integer, Writer> writers = new HashMap<>();
    /** The last record's writer; for records without a header the only one. */
    private Writer writer;

    private record Writer(Integer id, AvroStep plan) {}

    /** For records of a header and a schema that {@code registry} has. */
    AvroReader(Schema readerSchema, DataType type, Registry registry, Duration patience) {
        this.readerSchema = readerSchema;
        this.wrapped = !(type instanceof StructType);
        this.row = new DecodedRow(type instanceof StructType struct ? struct.size() : 1);
        this.registry = registry;
        this.patience = patience;
    }

    /** For records without a header, all written with {@code writerSchema}. */
    AvroReader(Schema readerSchema, DataType type, Schema writerSchema) {
        this(readerSchema, type, null, null);
        this.writer = new Writer(null, plan(writerSchema));
    }

    private AvroStep plan(Schema writerSchema) {
        try {
            return AvroPlan.of(writerSchema, readerSchema);
        } catch (AvroRuntimeException unfit) {
            return new AvroObjects.Mismatch(unfit.getMessage());
        }
    }

    /** The struct (value, schema id, error) of one record; throws only when the registry is out. */
    InternalRow read(byte[] record) {
        if (record == null) {
            return result(null, null, null);
        }
        if (record.length == 0) {
            return result(null, null, EMPTY);
        }
        Integer id = null;
        try {
            if (registry != null) {
                int wanted = WireFormat.schemaId(record);
                if (writer == null || writer.id != wanted) {
                    id = wanted;
                    writer = writerOf(wanted);
                }
                id = writer.id;
            }
            InternalRow value = value(decoder.over(record, registry == null ? 0 : WireFormat.HEADER));
            if (decoder.remaining() > 0) {
                throw new BadRecord(decoder.remaining() + " byte(s) left over after byte " + decoder.position());
            }
            return result(value, id, null);
        } catch (RegistryException outage) {
            throw outage;
        } catch (BadRecord bad) {
            return failed(id, bad.getMessage());
        } catch (StackOverflowError deep) {
            return failed(id, "nested too deeply");
        } catch (RuntimeException unreadable) {
            // A decimal of too many digits, a moment out of range, and their like.
            return failed(id, "not readable: " + unreadable);
        }
    }

    private InternalRow value(BoundedDecoder in) {
        row.reset();
        if (wrapped) {
            writer.plan.read(in, row, 0);
            return row.isNullAt(0) ? null : row;
        }
        if (writer.plan instanceof AvroNested.OfRecord record) {
            record.fill(in, row);
            return row;
        }
        return (InternalRow) writer.plan.read(in);
    }

    private Writer writerOf(int id) {
        Writer known = writers.get(id);
        if (known == null) {
            known = new Writer(id, plan(registry.schema(id, patience)));
            writers.put(id, known);
        }
        return known;
    }

    private InternalRow failed(Integer id, String error) {
        String line = error.replace('\n', ' ').replace('\r', ' ');
        return result(
                null,
                id,
                UTF8String.fromString(line.length() > LONGEST_ERROR ? line.substring(0, LONGEST_ERROR) + "…" : line));
    }

    private InternalRow result(InternalRow value, Integer id, UTF8String error) {
        result[0] = value;
        result[1] = id;
        result[2] = error;
        return resultRow;
    }
}
