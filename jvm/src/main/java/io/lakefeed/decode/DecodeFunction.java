package io.lakefeed.decode;

import io.lakefeed.SqlFunction;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@code decode(bytes)} and {@code decode(bytes, headers)} for every format: {@code struct<value: struct<…>, schema_id:
 * int, error: string>}. The headers are in the form of Spark's Kafka source; one of them can have the schema's id.
 *
 * <p>{@link DecodeOptions} lists the options of the function's catalog.
 */
public final class DecodeFunction extends SqlFunction<InternalRow> {
    private static final long serialVersionUID = 1L;

    private final DecodeOptions options;
    private final IdHeader.Names idHeaders;
    private transient ThreadLocal<RecordReader> readers;
    private transient RecordReader latest;

    /**
     * Creates the function that a catalog's options describe.
     *
     * @throws IllegalArgumentException if the options are invalid; the driver reports this before any task runs
     */
    public DecodeFunction(String name, CaseInsensitiveStringMap options) {
        this(name, options, new StructType().add("bytes", DataTypes.BinaryType));
    }

    DecodeFunction(String name, CaseInsensitiveStringMap options, StructType arguments) {
        this(name, new DecodeOptions(options), arguments);
    }

    private DecodeFunction(String name, DecodeOptions options, StructType arguments) {
        super(
                "decode",
                "decode." + name,
                new StructType()
                        .add("value", options.columns())
                        .add("schema_id", DataTypes.IntegerType)
                        .add("error", DataTypes.StringType),
                Arrays.stream(arguments.fields()).map(StructField::dataType).toArray(DataType[]::new));
        this.options = options;
        this.idHeaders = options.idHeaders();
        options.newReader();
    }

    public StructType columns() {
        return options.columns();
    }

    /** Returns the names of the headers that can have a schema's id; null for a format without ids. */
    public IdHeader.Names idHeaders() {
        return idHeaders;
    }

    /** Decodes one record, for Spark's generated code. */
    public InternalRow invoke(byte[] record) {
        return decode(record, null);
    }

    /** Decodes one record with its headers, for Spark's generated code. */
    public InternalRow invoke(byte[] record, ArrayData headers) {
        return decode(record, idHeaders == null ? null : idHeaders.in(headers));
    }

    /** Decodes one record; {@code headers} are the record's headers that have a schema's id, or null. */
    public InternalRow decode(byte[] record, IdHeader[] headers) {
        RecordReader reader = latest;
        if (reader == null || reader.owner != Thread.currentThread()) {
            reader = ofThisThread();
        }
        return reader.read(record, headers);
    }

    /** Returns the calling thread's reader. A task has its own function, so nearly always a single thread calls it. */
    private synchronized RecordReader ofThisThread() {
        if (readers == null) {
            readers = ThreadLocal.withInitial(options::newReader);
        }
        latest = readers.get();
        return latest;
    }

    @Override
    public boolean isResultNullable() {
        return false;
    }
}
