package io.lakefeed.parquet;

import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.StringLogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.TimeUnit;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.TimestampLogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.UUIDLogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.PrimitiveType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/** How the values of a column are read from rows and stored. */
enum ValueKind {
    BOOLEAN,
    BYTE,
    SHORT,
    INT,
    LONG,
    FLOAT,
    DOUBLE,
    /** A decimal that fits into a long. */
    DECIMAL,
    TEXT,
    BYTES,
    UUID,
    /** A decimal as bytes of one length. */
    LONG_DECIMAL,
    /** Nanoseconds of the day and the Julian day: Spark's older form of timestamps. */
    INT96;

    /** Returns how values of Spark's type are stored in a column of this type; null if no file is written so here. */
    static ValueKind of(PrimitiveType type, DataType rows) {
        LogicalTypeAnnotation logical = type.getLogicalTypeAnnotation();
        if (logical instanceof DecimalLogicalTypeAnnotation decimal) {
            boolean same = rows instanceof DecimalType own
                    && own.precision() == decimal.getPrecision()
                    && own.scale() == decimal.getScale();
            return !same ? null : switch (type.getPrimitiveTypeName()) {
                case INT32, INT64 -> DECIMAL;
                case FIXED_LEN_BYTE_ARRAY -> LONG_DECIMAL;
                default -> null;
            };
        }
        return switch (type.getPrimitiveTypeName()) {
            case BOOLEAN -> rows instanceof BooleanType ? BOOLEAN : null;
            case INT32 -> whole(rows);
            case INT64 -> isMicros(logical, rows) || logical == null && rows instanceof LongType ? LONG : null;
            case FLOAT -> rows instanceof FloatType ? FLOAT : null;
            case DOUBLE -> rows instanceof DoubleType ? DOUBLE : null;
            case BINARY -> logical instanceof StringLogicalTypeAnnotation && rows instanceof StringType
                    ? TEXT
                    : bytes(logical, rows);
            case FIXED_LEN_BYTE_ARRAY -> logical instanceof UUIDLogicalTypeAnnotation && rows instanceof StringType
                    ? UUID
                    : bytes(logical, rows);
            case INT96 -> rows instanceof TimestampType ? INT96 : null;
        };
    }

    private static ValueKind whole(DataType rows) {
        if (rows instanceof ShortType) {
            return SHORT;
        }
        if (rows instanceof ByteType) {
            return BYTE;
        }
        return rows instanceof IntegerType || rows instanceof DateType ? INT : null;
    }

    private static boolean isMicros(LogicalTypeAnnotation logical, DataType rows) {
        return logical instanceof TimestampLogicalTypeAnnotation timestamp
                && timestamp.getUnit() == TimeUnit.MICROS
                && (rows instanceof TimestampType || rows instanceof TimestampNTZType);
    }

    private static ValueKind bytes(LogicalTypeAnnotation logical, DataType rows) {
        return logical == null && rows instanceof BinaryType ? BYTES : null;
    }
}
