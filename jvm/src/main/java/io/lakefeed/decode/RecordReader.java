package io.lakefeed.decode;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads the records of one thread in one format, each into the struct (value, schema id, error).
 *
 * <p>A format converts the bytes to the value, and throws {@link BadRecord} with the path of the field for a record
 * that it cannot read. It charges its memory budget for everything that a record can repeat. Any other failure of one
 * record becomes its error too, also when memory runs out. Only a {@link RegistryException} is thrown.
 *
 * <p>A format of an installed package has a public subclass with a public constructor of the columns and the options,
 * {@code (StructType, Map<String, String>)}; an {@link IllegalArgumentException} of it is shown on the driver.
 */
public abstract class RecordReader {
    private static final byte[] BYTE_ORDER_MARK = {(byte) 0xEF, (byte) 0xBB, (byte) 0xBF};
    private static final int LONGEST_ERROR = 1_000;
    private static final UTF8String EMPTY = UTF8String.fromString("empty: 0 bytes");

    /** The only thread that may call {@link #read}: a reader reuses its buffers. */
    final Thread owner = Thread.currentThread();

    /** The memory budget of the present record. */
    final MemoryBudget budget = new MemoryBudget();

    private final Writers<?> writers;
    private Integer latest = 0;

    /** Creates a reader of records without a header. */
    protected RecordReader() {
        this(null);
    }

    /** Creates a reader of records with a header if {@code writers} is not null, else without. */
    RecordReader(Writers<?> writers) {
        this.writers = writers;
    }

    /** Returns whether a record without bytes can be a value. */
    boolean takesEmpty() {
        return false;
    }

    /**
     * Returns the value of one record.
     *
     * @param from its position, after the header if there is one
     * @param schemaId from the header; 0 without one
     * @throws BadRecord if the record cannot be read
     */
    protected abstract InternalRow value(byte[] record, int from, int schemaId);

    /**
     * Returns the text of a value in UTF-8; RFC 8259 allows a reader to ignore a byte order mark.
     *
     * @param from the position of its first byte
     */
    protected static String text(byte[] bytes, int from) {
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

    /** Returns the struct of one record; throws only if the registry is unavailable. */
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
                int id = WireFormat.schemaId(record);
                // The same object while the id stays the same: most topics have few.
                latest = latest == id ? latest : (Integer) id;
                schemaId = latest;
                from = WireFormat.HEADER;
            }
            budget.start(record.length);
            return result(value(record, from, schemaId == null ? 0 : schemaId), schemaId, null);
        } catch (StackOverflowError deep) {
            return failed(schemaId, "nested too deeply");
        } catch (OutOfMemoryError full) {
            return failed(schemaId, "not enough memory for this record of " + record.length + " bytes");
        } catch (RuntimeException bad) {
            return failed(schemaId, BadRecord.of(bad).getMessage() + (writers == null ? WireFormat.described(record) : ""));
        }
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
     * Gets writers' schemas from the registry.
     *
     * @param patience how long an unavailable registry is retried
     * @param subjects a schema must be registered under one of these; empty for any
     */
    record Writers<T>(Registry registry, Duration patience, WriterSchema<T> kind, Set<String> subjects) {
        /** Returns the schema with this id. */
        T schema(int schemaId) {
            T schema = registry.schema(schemaId, patience, kind);
            if (!subjects.isEmpty()) {
                registry.requireSubject(schemaId, subjects, patience);
            }
            return schema;
        }
    }

    /**
     * Confluent's wire format: one zero byte, the schema's id as four bytes, big end first, then the data.
     *
     * @see <a href="https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format">
     *     the format's description</a>
     */
    static final class WireFormat {
        /** The length of the header; the data follow it. */
        static final int HEADER = 5;

        private static final byte MAGIC = 0;

        private WireFormat() {}

        /**
         * Returns the schema's id in a record's header.
         *
         * @throws BadRecord if the record has no such header
         */
        static int schemaId(byte[] record) {
            if (record[0] != MAGIC) {
                throw new BadRecord("wrong magic byte " + (record[0] & 0xFF) + " instead of 0: not in Confluent wire format");
            }
            if (record.length < HEADER) {
                throw new BadRecord("truncated: " + record.length + " bytes, a header alone has " + HEADER);
            }
            return (record[1] & 0xFF) << 24 | (record[2] & 0xFF) << 16 | (record[3] & 0xFF) << 8 | record[4] & 0xFF;
        }

        /** Returns a hint for the error of a value that is read without a header and begins like one with a header. */
        static String described(byte[] record) {
            boolean framed = record.length > HEADER && record[0] == MAGIC && schemaId(record) > 0;
            return framed ? "; it begins as values of a schema registry do, with schema id " + schemaId(record) : "";
        }
    }
}
