package io.lakefeed.decode;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.GeographyVal;
import org.apache.spark.unsafe.types.GeometryVal;
import org.apache.spark.unsafe.types.VariantVal;

/** A row with the getters that only some lines of Spark have. */
abstract class SparkRow extends InternalRow {
    private static final long serialVersionUID = 1L;

    abstract Object object(int field);

    @Override
    public GeographyVal getGeography(int field) {
        return (GeographyVal) object(field);
    }

    @Override
    public GeometryVal getGeometry(int field) {
        return (GeometryVal) object(field);
    }

    @Override
    public VariantVal getVariant(int field) {
        return (VariantVal) object(field);
    }
}
