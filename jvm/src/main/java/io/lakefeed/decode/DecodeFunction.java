package io.lakefeed.decode;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@code decode(bytes)} for every format: {@code struct<value: struct<…>, schema_id: int, error: string>}.
 *
 * <p>{@link DecodeOptions} lists the options of its catalog.
 *
 * <p>The function declares itself non-deterministic. Spark then evaluates it once for each row, however many fields of
 * the result a query selects and filters on.
 */
public final class DecodeFunction implements ScalarFunction<InternalRow>, Serializable {
    private static final long serialVersionUID = 1L;

    private final String name;
    private final DecodeOptions options;
    private final StructType resultType;
    private transient ThreadLocal<RecordReader> readers;
    private transient RecordReader latest;

    /**
     * Creates the function that a catalog's options describe.
     *
     * @throws IllegalArgumentException if the options are invalid: the user sees it on the driver, before any task runs
     */
    DecodeFunction(String name, CaseInsensitiveStringMap options) {
        this.name = name;
        this.options = new DecodeOptions(options);
        this.resultType = new StructType()
                .add("value", this.options.columns())
                .add("schema_id", DataTypes.IntegerType)
                .add("error", DataTypes.StringType);
        this.options.newReader();
    }

    /** Returns the function that these options describe, for a reader that decodes what it reads. */
    public static DecodeFunction of(CaseInsensitiveStringMap options) {
        return new DecodeFunction("records", options);
    }

    /** Returns the fields of a decoded value. */
    public StructType columns() {
        return options.columns();
    }

    /** Decodes one record; generated code calls this. */
    public InternalRow invoke(byte[] record) {
        RecordReader reader = latest;
        if (reader == null || reader.owner != Thread.currentThread()) {
            reader = ofThisThread();
        }
        return reader.read(record);
    }

    /** A task deserialises its own function, so nearly always one thread calls it and no look-up is needed. */
    private synchronized RecordReader ofThisThread() {
        if (readers == null) {
            readers = ThreadLocal.withInitial(options::newReader);
        }
        latest = readers.get();
        return latest;
    }

    @Override
    public DataType[] inputTypes() {
        return new DataType[] {DataTypes.BinaryType};
    }

    @Override
    public DataType resultType() {
        return resultType;
    }

    @Override
    public boolean isResultNullable() {
        return false;
    }

    @Override
    public boolean isDeterministic() {
        return false;
    }

    @Override
    public String name() {
        return "decode";
    }

    @Override
    public String canonicalName() {
        return "io.lakefeed.decode." + name;
    }

    /** Shows only the name: Spark prints plans, and the options have credentials. */
    @Override
    public String toString() {
        return name + ".decode";
    }
}
