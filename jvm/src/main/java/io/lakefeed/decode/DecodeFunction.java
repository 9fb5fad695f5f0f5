package io.lakefeed.decode;

import io.lakefeed.SqlFunction;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@code decode(bytes)} for every format: {@code struct<value: struct<…>, schema_id: int, error: string>}.
 *
 * <p>{@link DecodeOptions} lists the options of the function's catalog.
 */
public final class DecodeFunction extends SqlFunction<InternalRow> {
    private static final long serialVersionUID = 1L;

    private final DecodeOptions options;
    private transient ThreadLocal<RecordReader> readers;
    private transient RecordReader latest;

    /**
     * Creates the function that a catalog's options describe.
     *
     * @throws IllegalArgumentException if the options are invalid; the driver reports this before any task runs
     */
    public DecodeFunction(String name, CaseInsensitiveStringMap options) {
        this(name, new DecodeOptions(options));
    }

    private DecodeFunction(String name, DecodeOptions options) {
        super(
                "decode",
                "decode." + name,
                new StructType()
                        .add("value", options.columns())
                        .add("schema_id", DataTypes.IntegerType)
                        .add("error", DataTypes.StringType),
                DataTypes.BinaryType);
        this.options = options;
        options.newReader();
    }

    public StructType columns() {
        return options.columns();
    }

    public InternalRow invoke(byte[] record) {
        RecordReader reader = latest;
        if (reader == null || reader.owner != Thread.currentThread()) {
            reader = ofThisThread();
        }
        return reader.read(record);
    }

    /** Returns the reader of the calling thread. A task has its own function, so nearly always one thread calls it. */
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
