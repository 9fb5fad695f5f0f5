package io.lakefeed;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * {@code once(struct)}: the struct itself, computed once for each row.
 *
 * <p>Spark's optimiser copies a deterministic expression into every filter and projection that uses it. For an
 * expensive one, such as {@code from_json}, this identity stops it: it says that it is not deterministic, so
 * nothing is pushed through it and nothing is copied.
 */
public final class Once implements ScalarFunction<InternalRow>, Serializable {
    private static final long serialVersionUID = 1L;
    private final DataType type;

    /** The identity on the one argument in {@code arguments}. */
    public Once(StructType arguments) {
        if (arguments.size() != 1 || !(arguments.fields()[0].dataType() instanceof StructType)) {
            throw new UnsupportedOperationException("once() takes one struct");
        }
        this.type = arguments.fields()[0].dataType();
    }

    /** Called by generated code. */
    public InternalRow invoke(InternalRow value) {
        return value;
    }

    @Override
    public DataType[] inputTypes() {
        return new DataType[] {type};
    }

    @Override
    public DataType resultType() {
        return type;
    }

    @Override
    public boolean isDeterministic() {
        return false;
    }

    @Override
    public String name() {
        return "once";
    }

    @Override
    public String canonicalName() {
        return "io.lakefeed.once";
    }

    @Override
    public String toString() {
        return "lakefeed.once";
    }
}
