package io.lakefeed.produce;

import java.io.Serializable;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * What {@code encode(struct)} is in every format. Spark's generated code calls the method {@code invoke} of the format's
 * class.
 */
public abstract class StructEncode implements ScalarFunction<byte[]>, Serializable {
    private static final long serialVersionUID = 1L;

    final StructType type;

    /** Takes the type of the one argument in {@code arguments}. */
    StructEncode(StructType arguments) {
        if (arguments.size() != 1 || !(arguments.fields()[0].dataType() instanceof StructType struct)) {
            throw new UnsupportedOperationException("encode() takes one struct");
        }
        type = struct;
    }

    @Override
    public DataType[] inputTypes() {
        return new DataType[] {type};
    }

    @Override
    public DataType resultType() {
        return DataTypes.BinaryType;
    }

    @Override
    public String name() {
        return "encode";
    }

    @Override
    public String toString() {
        return "lakefeed.encode";
    }
}
