package io.lakefeed.parquet;

import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.StringLogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.TimeUnit;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.TimestampLogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation.UUIDLogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.iceberg.shaded.org.apache.parquet.schema.PrimitiveType;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StringType;

/** How the values of a column are read from Spark's rows, and stored. */
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
    /** A decimal that does not fit into a long, stored as bytes of a fixed length. */
    LONG_DECIMAL,
    /** A timestamp in Spark's older form: the nanoseconds of the day, and the Julian day. */
    INT96;

    /** Returns the kind of Spark's values in a column of this type; null for a type that is not supported. */
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
            case BOOLEAN -> rows == DataTypes.BooleanType ? BOOLEAN : null;
            case INT32 -> whole(rows);
            case INT64 -> isMicros(logical, rows) || logical == null && rows == DataTypes.LongType ? LONG : null;
            case FLOAT -> rows == DataTypes.FloatType ? FLOAT : null;
            case DOUBLE -> rows == DataTypes.DoubleType ? DOUBLE : null;
            case BINARY -> logical instanceof StringLogicalTypeAnnotation && rows instanceof StringType
                    ? TEXT
                    : bytes(logical, rows);
            case FIXED_LEN_BYTE_ARRAY -> logical instanceof UUIDLogicalTypeAnnotation && rows instanceof StringType
                    ? UUID
                    : bytes(logical, rows);
            case INT96 -> rows == DataTypes.TimestampType ? INT96 : null;
        };
    }

    private static ValueKind whole(DataType rows) {
        if (rows == DataTypes.ShortType) {
            return SHORT;
        }
        if (rows == DataTypes.ByteType) {
            return BYTE;
        }
        return rows == DataTypes.IntegerType || rows == DataTypes.DateType ? INT : null;
    }

    private static boolean isMicros(LogicalTypeAnnotation logical, DataType rows) {
        return logical instanceof TimestampLogicalTypeAnnotation timestamp
                && timestamp.getUnit() == TimeUnit.MICROS
                && (rows == DataTypes.TimestampType || rows == DataTypes.TimestampNTZType);
    }

    private static ValueKind bytes(LogicalTypeAnnotation logical, DataType rows) {
        return logical == null && rows == DataTypes.BinaryType ? BYTES : null;
    }

    /** Reads a decimal; refuses a value that does not fit the column, as Iceberg's appender does. */
    static Decimal decimal(SpecializedGetters from, int at, PrimitiveType type) {
        DecimalLogicalTypeAnnotation decimal = (DecimalLogicalTypeAnnotation) type.getLogicalTypeAnnotation();
        Decimal value = from.getDecimal(at, decimal.getPrecision(), decimal.getScale());
        if (value.scale() != decimal.getScale() || value.precision() > decimal.getPrecision()) {
            throw new IllegalArgumentException("Cannot write value as decimal(" + decimal.getPrecision() + ","
                    + decimal.getScale() + "): " + value);
        }
        return value;
    }
}
