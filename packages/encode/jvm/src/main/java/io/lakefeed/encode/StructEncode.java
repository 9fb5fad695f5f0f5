package io.lakefeed.encode;

import io.lakefeed.SqlFunction;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The parts of {@code encode(struct)} that all formats share. */
public abstract class StructEncode extends SqlFunction<byte[]> {
    private static final long serialVersionUID = 1L;

    final StructType type;

    /** Creates a function for one argument. Encoders with different settings have different names. */
    StructEncode(StructType arguments, String settings) {
        super("encode", "encode." + Integer.toHexString(settings.hashCode()), DataTypes.BinaryType, of(arguments));
        type = of(arguments);
    }

    private static StructType of(StructType arguments) {
        if (arguments.size() != 1 || !(arguments.fields()[0].dataType() instanceof StructType struct)) {
            throw new UnsupportedOperationException("encode() takes one argument, a struct: use encode(struct(…))");
        }
        return struct;
    }

    @Override
    public final boolean isDeterministic() {
        return true;
    }
}
