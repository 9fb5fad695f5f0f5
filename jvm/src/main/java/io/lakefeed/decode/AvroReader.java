package io.lakefeed.decode;

import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.AvroTypeException;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.spark.sql.avro.AvroDeserializer;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads records for one thread: Avro's own schema resolution, then Spark's own conversion, so that the values
 * are those of {@code from_avro}. The row inside a result is reused for the next record, as there.
 */
final class AvroReader {
    private static final int LONGEST_ERROR = 1_000;
    private static final UTF8String EMPTY = UTF8String.fromString("empty: 0 bytes");

    /** The only thread that may call {@link #read}. */
    final Thread owner = Thread.currentThread();

    private final Schema readerSchema;
    private final boolean wrapped;
    private final AvroDeserializer toSpark;
    private final BoundedDecoder decoder = new BoundedDecoder();

    private final Registry registry;
    private final Duration patience;
    private final Map<Integer, Writer> writers = new HashMap<>();
    /** The last record's writer; for records without a header the only one. */
    private Writer writer;

    private static final class Writer {
        final Integer id;
        final GenericDatumReader<Object> resolving;
        Object reuse;

        Writer(Integer id, Schema writerSchema, Schema readerSchema) {
            this.id = id;
            this.resolving = new GenericDatumReader<>(writerSchema, readerSchema);
        }
    }

    /** For records of a header and a schema that {@code registry} has. */
    AvroReader(Schema readerSchema, DataType type, Registry registry, Duration patience) {
        this.readerSchema = readerSchema;
        this.wrapped = !(type instanceof StructType);
        // Kafka records are written by Avro's libraries, never by a Spark 2 with its Julian calendar.
        this.toSpark = new AvroDeserializer(readerSchema, type, "CORRECTED", false, "", -1);
        this.registry = registry;
        this.patience = patience;
    }

    /** For records without a header, all written with {@code writerSchema}. */
    AvroReader(Schema readerSchema, DataType type, Schema writerSchema) {
        this(readerSchema, type, null, null);
        this.writer = new Writer(null, writerSchema, readerSchema);
    }

    /** The struct (value, schema id, error) of one record; throws only when the registry is out. */
    InternalRow read(byte[] record) {
        if (record == null) {
            return result(null, null, null);
        }
        if (record.length == 0) {
            return result(null, null, EMPTY);
        }
        boolean identified = false;
        int id = 0;
        try {
            if (registry != null) {
                id = WireFormat.schemaId(record);
                identified = true;
                if (writer == null || writer.id != id) {
                    writer = writerOf(id);
                }
            }
            Writer current = writer;
            Object datum = current.resolving.read(
                    current.reuse, decoder.over(record, registry == null ? 0 : WireFormat.HEADER));
            if (decoder.remaining() > 0) {
                throw new BadRecord(decoder.remaining() + " byte(s) left over after byte " + decoder.position());
            }
            current.reuse = datum;
            if (datum == null) {
                return result(null, current.id, null);
            }
            Object value = toSpark.deserialize(datum).get();
            return result(
                    wrapped ? new GenericInternalRow(new Object[] {value}) : (InternalRow) value, current.id, null);
        } catch (RegistryException outage) {
            throw outage;
        } catch (BadRecord bad) {
            return failed(identified ? id : null, bad.getMessage());
        } catch (AvroTypeException mismatch) {
            return failed(identified ? id : null, "the writer's schema does not fit the reader's: " + mismatch.getMessage());
        } catch (StackOverflowError deep) {
            return failed(identified ? id : null, "nested too deeply");
        } catch (IOException | AvroRuntimeException unreadable) {
            return failed(identified ? id : null, "not readable: " + unreadable.getMessage());
        } catch (RuntimeException unreadable) {
            // An enum or union index out of range, a value that Spark's type does not take, and their like.
            return failed(identified ? id : null, "not readable: " + unreadable);
        }
    }

    private Writer writerOf(int id) {
        Writer known = writers.get(id);
        if (known == null) {
            known = new Writer(id, registry.schema(id, patience), readerSchema);
            writers.put(id, known);
        }
        return known;
    }

    private InternalRow failed(Integer id, String error) {
        if (writer != null) {
            writer.reuse = null;
        }
        String line = error.replace('\n', ' ').replace('\r', ' ');
        return result(
                null,
                id,
                UTF8String.fromString(line.length() > LONGEST_ERROR ? line.substring(0, LONGEST_ERROR) + "…" : line));
    }

    private static InternalRow result(InternalRow value, Integer id, UTF8String error) {
        return new GenericInternalRow(new Object[] {value, id, error});
    }
}
