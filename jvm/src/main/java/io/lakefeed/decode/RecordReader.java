package io.lakefeed.decode;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads records of one format in one thread, each into the struct (value, schema id, error).
 *
 * <p>A format converts a record's bytes to the value, and charges its memory budget for everything that a record can
 * repeat. For a record that it cannot read, it throws {@link BadRecord} with the path of the field. Other exceptions,
 * even a lack of memory, become the record's error, too. Only a {@link RegistryException} is thrown to the caller.
 *
 * <p>A format of an installed package has a public subclass with a public constructor for the columns and the options,
 * {@code (StructType, Map<String, String>)}. The driver shows an {@link IllegalArgumentException} of the constructor.
 */
public abstract class RecordReader {
    private static final byte[] BYTE_ORDER_MARK = {(byte) 0xEF, (byte) 0xBB, (byte) 0xBF};
    private static final int LONGEST_ERROR = 1_000;
    private static final UTF8String EMPTY = UTF8String.fromString("empty: 0 bytes");

    /** The only thread that may call {@link #read}: a reader reuses its buffers. */
    final Thread owner = Thread.currentThread();

    final MemoryBudget budget = new MemoryBudget();

    private final Writers<?> writers;
    private final HeaderIds headerIds;
    private final GlueFrame glue;
    private Integer latest = 0;

    protected RecordReader() {
        this(null);
    }

    /** Creates a reader of records, which have a header if {@code writers} is not null. */
    RecordReader(Writers<?> writers) {
        this.writers = writers;
        this.headerIds = writers == null ? null : new HeaderIds(writers);
        this.glue = writers == null || !writers.registry.isGlue ? null : new GlueFrame(writers);
    }

    /** Returns whether a record without bytes can have a value. */
    boolean takesEmpty() {
        return false;
    }

    /**
     * Returns the value of one record.
     *
     * @param from the index of the value's first byte, after the header if there is one
     * @param schemaId the schema's id in the header; 0 without a header
     * @throws BadRecord if the record cannot be read
     */
    protected abstract InternalRow value(byte[] record, int from, int schemaId);

    /**
     * Returns a value as text. The value must be UTF-8; a byte order mark is ignored, as RFC 8259 allows.
     *
     * @param from the index of the value's first byte
     */
    protected static String text(byte[] bytes, int from) {
        int start = from;
        while (start - from < BYTE_ORDER_MARK.length && start < bytes.length && bytes[start] == BYTE_ORDER_MARK[start - from]) {
            start++;
        }
        start = start - from == BYTE_ORDER_MARK.length ? start : from;
        if (!SparkApi.isUtf8(UTF8String.fromBytes(bytes, start, bytes.length - start))) {
            throw new BadRecord("not UTF-8");
        }
        return new String(bytes, start, bytes.length - start, StandardCharsets.UTF_8);
    }

    /** Returns the value of a record whose header has the schema's id; in Confluent's header, more bytes may follow. */
    InternalRow value(byte[] record, HeaderIds.Named schema) {
        return value(record, 0, schema.only());
    }

    /**
     * Returns the struct of a record; throws only a {@link RegistryException}.
     *
     * @param headers the record's headers with a schema's id; null if the id precedes the data
     */
    final InternalRow read(byte[] record, IdHeader[] headers) {
        if (record == null) {
            return result(null, null, null);
        }
        if (record.length == 0 && headers == null && (writers != null || !takesEmpty())) {
            return result(null, null, EMPTY);
        }
        Integer schemaId = null;
        try {
            if (writers == null) {
                budget.start(record.length);
                return result(value(record, 0, 0), null, null);
            }
            if (glue != null) {
                glue.read(record);
                schemaId = glue.id();
                // Compressed data get the memory budget of their uncompressed size, up to 8 times that of the record.
                budget.start((int) Math.min(glue.data().length, 8L * record.length));
                return result(value(glue.data(), glue.from(), schemaId), schemaId, null);
            }
            HeaderIds.Named named = headers == null ? null : headerIds.of(headers);
            int id = named == null ? WireFormat.schemaId(record) : named.id();
            // Create a new Integer only when the id changes, because most topics have few ids.
            latest = latest == id ? latest : (Integer) id;
            schemaId = latest;
            budget.start(record.length);
            InternalRow value = named == null ? value(record, WireFormat.HEADER, id) : value(record, named);
            return result(value, schemaId, null);
        } catch (StackOverflowError deep) {
            return failed(schemaId, "nested too deeply");
        } catch (OutOfMemoryError full) {
            return failed(schemaId, "not enough memory for this record of " + record.length + " bytes");
        } catch (RuntimeException bad) {
            return failed(schemaId, BadRecord.of(bad).getMessage() + (writers == null || headers != null ? WireFormat.described(record) : ""));
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
     * @param patience how long to wait for an unavailable registry
     * @param subjects the subjects whose schemas are accepted; empty for all
     */
    record Writers<T>(Registry registry, Duration patience, WriterSchema<T> kind, Set<String> subjects) {
        T schema(int schemaId) {
            T schema = registry.schema(schemaId, patience, kind);
            if (!subjects.isEmpty()) {
                registry.requireSubject(schemaId, subjects, patience);
            }
            return schema;
        }

        int id(SchemaReference reference) {
            return registry.id(reference, patience);
        }
    }

    /**
     * Confluent's wire format: a zero byte, the schema's id in four bytes, highest first, then the data.
     *
     * @see <a
     *     href="https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format">
     *     the format's description</a>
     */
    static final class WireFormat {
        static final int HEADER = 5;

        private static final byte MAGIC = 0;

        private WireFormat() {}

        /**
         * Returns the schema's id that precedes the data.
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

        /** Returns a hint if a value that is read without a header seems to have one; otherwise an empty text. */
        static String described(byte[] record) {
            boolean framed = record.length > HEADER && record[0] == MAGIC && schemaId(record) > 0;
            return framed ? "; it begins as values of a schema registry do, with schema id " + schemaId(record) : "";
        }
    }
}
