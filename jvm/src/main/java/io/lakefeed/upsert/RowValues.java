package io.lakefeed.upsert;

import java.nio.ByteBuffer;
import java.util.List;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;

/**
 * A view of a row that returns values as Iceberg's partition transforms expect them; Iceberg's own such class is
 * private to its package.
 */
final class RowValues implements StructLike {
    private final List<Types.NestedField> fields;
    private final StructType types;
    private InternalRow row;

    RowValues(Types.StructType fields, StructType types) {
        this.fields = fields.fields();
        this.types = types;
    }

    RowValues of(InternalRow of) {
        row = of;
        return this;
    }

    @Override
    public int size() {
        return fields.size();
    }

    @Override
    public <T> T get(int at, Class<T> javaClass) {
        if (row.isNullAt(at)) {
            return null;
        }
        DataType type = types.apply(at).dataType();
        Object value;
        if (type instanceof StringType) {
            value = row.getUTF8String(at).toString();
        } else if (type instanceof DecimalType decimal) {
            value = row.getDecimal(at, decimal.precision(), decimal.scale()).toJavaBigDecimal();
        } else if (type instanceof BinaryType) {
            value = ByteBuffer.wrap(row.getBinary(at));
        } else {
            value = row.get(at, type);
        }
        return javaClass.cast(value);
    }

    @Override
    public <T> void set(int at, T value) {
        throw new UnsupportedOperationException("rows are only read");
    }
}
