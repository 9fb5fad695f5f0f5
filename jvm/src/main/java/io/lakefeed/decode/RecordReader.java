package io.lakefeed.decode;

import java.time.Duration;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads the records of one thread in one format; makes of each the struct (value, schema id, error).
 *
 * <p>A format says how bytes become the value, and throws {@link BadRecord} for a record that it cannot read, with the path
 * of the field. It charges {@link #budget} for what a record can repeat. Whatever else goes wrong with one record becomes
 * its error too, also when the memory does not suffice; a {@link RegistryException} alone is let through.
 */
abstract class RecordReader {
    private static final int LONGEST_ERROR = 1_000;
    private static final UTF8String EMPTY = UTF8String.fromString("empty: 0 bytes");

    /** The only thread that may call {@link #read}: a reader reuses its buffers. */
    final Thread owner = Thread.currentThread();

    /** The memory that the present record may take. */
    final MemoryBudget budget = new MemoryBudget();

    private final Writers<?> writers;
    private Integer latest = 0;

    /** A reader of records with a header if {@code writers} are given, else of bare ones. */
    RecordReader(Writers<?> writers) {
        this.writers = writers;
    }

    /** Whether no bytes at all can be a value. */
    boolean takesEmpty() {
        return false;
    }

    /**
     * The value of one record.
     *
     * @param from where it begins, behind the header if there is one
     * @param schemaId from the header; 0 without one
     */
    abstract InternalRow value(byte[] record, int from, int schemaId);

    /** The struct of one record; throws only when the registry is out. */
    final InternalRow read(byte[] record) {
        if (record == null) {
            return result(null, null, null);
        }
        if (record.length == 0 && (writers != null || !takesEmpty())) {
            return result(null, null, EMPTY);
        }
        Integer schemaId = null;
        try {
            int from = 0;
            if (writers != null) {
                schemaId = boxed(WireFormat.schemaId(record));
                from = WireFormat.HEADER;
            }
            budget.start(record.length);
            return result(value(record, from, schemaId == null ? 0 : schemaId), schemaId, null);
        } catch (StackOverflowError deep) {
            return failed(schemaId, "nested too deeply");
        } catch (OutOfMemoryError full) {
            return failed(schemaId, "the memory does not suffice for this record, of " + record.length + " bytes");
        } catch (RuntimeException bad) {
            return failed(schemaId, BadRecord.of(bad).getMessage() + (writers == null ? WireFormat.told(record) : ""));
        }
    }

    /** The same object again while the id stays the same: most topics have few. */
    private Integer boxed(int schemaId) {
        if (latest != schemaId) {
            latest = schemaId;
        }
        return latest;
    }

    private static InternalRow failed(Integer schemaId, String error) {
        String line = error.replace('\n', ' ').replace('\r', ' ');
        return result(
                null,
                schemaId,
                UTF8String.fromString(line.length() > LONGEST_ERROR ? line.substring(0, LONGEST_ERROR) + "…" : line));
    }

    private static InternalRow result(InternalRow value, Integer schemaId, UTF8String error) {
        return new GenericInternalRow(new Object[] {value, schemaId, error});
    }

    /**
     * Writers' schemas out of the registry.
     *
     * @param patience how long to go on asking a registry that does not answer
     * @param subjects a schema has to be registered under one of these; empty for any
     */
    record Writers<T>(Registry registry, Duration patience, WriterSchema<T> kind, Set<String> subjects) {
        /** The schema with this id. */
        T schema(int schemaId) {
            T schema = registry.schema(schemaId, patience, kind);
            if (!subjects.isEmpty()) {
                registry.requireSubject(schemaId, subjects, patience);
            }
            return schema;
        }
    }
}
