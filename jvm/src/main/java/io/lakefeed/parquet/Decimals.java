package io.lakefeed.parquet;

import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.PrimitiveType;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.types.Decimal;

/** Reads decimals, and refuses those that their column cannot hold, as Iceberg's writer does. */
final class Decimals {
    private Decimals() {}

    static Decimal of(SpecializedGetters from, int at, PrimitiveType type) {
        DecimalLogicalTypeAnnotation decimal = (DecimalLogicalTypeAnnotation) type.getLogicalTypeAnnotation();
        Decimal value = from.getDecimal(at, decimal.getPrecision(), decimal.getScale());
        if (value.scale() != decimal.getScale() || value.precision() > decimal.getPrecision()) {
            throw new IllegalArgumentException("Cannot write value as decimal(" + decimal.getPrecision() + ","
                    + decimal.getScale() + "): " + value);
        }
        return value;
    }
}
