package io.lakefeed.parquet;

import static org.apache.iceberg.TableProperties.PARQUET_COMPRESSION;
import static org.apache.iceberg.TableProperties.PARQUET_COMPRESSION_DEFAULT;
import static org.apache.iceberg.TableProperties.PARQUET_COMPRESSION_LEVEL;
import static org.apache.iceberg.TableProperties.PARQUET_DICT_SIZE_BYTES;
import static org.apache.iceberg.TableProperties.PARQUET_DICT_SIZE_BYTES_DEFAULT;
import static org.apache.iceberg.TableProperties.PARQUET_PAGE_ROW_LIMIT;
import static org.apache.iceberg.TableProperties.PARQUET_PAGE_ROW_LIMIT_DEFAULT;
import static org.apache.iceberg.TableProperties.PARQUET_PAGE_SIZE_BYTES;
import static org.apache.iceberg.TableProperties.PARQUET_PAGE_SIZE_BYTES_DEFAULT;
import static org.apache.iceberg.TableProperties.PARQUET_ROW_GROUP_CHECK_MAX_RECORD_COUNT;
import static org.apache.iceberg.TableProperties.PARQUET_ROW_GROUP_CHECK_MAX_RECORD_COUNT_DEFAULT;
import static org.apache.iceberg.TableProperties.PARQUET_ROW_GROUP_CHECK_MIN_RECORD_COUNT;
import static org.apache.iceberg.TableProperties.PARQUET_ROW_GROUP_CHECK_MIN_RECORD_COUNT_DEFAULT;
import static org.apache.iceberg.TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES;
import static org.apache.iceberg.TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES_DEFAULT;
import static org.apache.iceberg.TableProperties.PARQUET_SHRED_VARIANTS;
import static org.apache.iceberg.TableProperties.PARQUET_VARIANT_BUFFER_SIZE;

import io.lakefeed.parquet.ColumnarAppender.RowGroups;
import io.lakefeed.parquet.PageBuffer.Limits;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.avro.AvroSchemaUtil;
import org.apache.iceberg.encryption.EncryptedOutputFile;
import org.apache.iceberg.encryption.NativeEncryptionOutputFile;
import org.apache.iceberg.io.FileAppender;
import org.apache.iceberg.parquet.ParquetSchemaUtil;
import org.apache.iceberg.shaded.org.apache.parquet.column.ColumnDescriptor;
import org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.PropertyUtil;
import org.apache.spark.sql.catalyst.InternalRow;
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
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/** Decides which files are written by columns: those with flat schemas, zstd, and no setting that is unknown here. */
final class ColumnarFile {
    private static final String WRITER_PROPERTIES = "write.parquet.";
    private static final Set<String> KNOWN_PROPERTIES = Set.of(
            PARQUET_COMPRESSION,
            PARQUET_COMPRESSION_LEVEL,
            PARQUET_DICT_SIZE_BYTES,
            PARQUET_PAGE_ROW_LIMIT,
            PARQUET_PAGE_SIZE_BYTES,
            PARQUET_ROW_GROUP_SIZE_BYTES,
            PARQUET_ROW_GROUP_CHECK_MIN_RECORD_COUNT,
            PARQUET_ROW_GROUP_CHECK_MAX_RECORD_COUNT,
            // Spark's writes always have the first; flat files have no variant.
            PARQUET_SHRED_VARIANTS,
            PARQUET_VARIANT_BUFFER_SIZE);
    /** The footer of a file that was written by columns has this key. */
    private static final String ENCODER = "lakefeed.encoder";

    /** Where the table does not say: 3, parquet-java's default, takes a fifth more time and makes files no smaller. */
    private static final String LEVEL = "1";

    private ColumnarFile() {}

    /** Returns the appender of a file; null if Iceberg's own has to write it. */
    static FileAppender<InternalRow> appender(
            EncryptedOutputFile file,
            Schema schema,
            StructType rows,
            Map<String, String> properties,
            Map<String, String> metadata,
            MetricsConfig metricsConfig)
            throws IOException {
        if (file instanceof NativeEncryptionOutputFile || rows == null || refusal(schema, rows, properties) != null) {
            return null;
        }
        List<Types.NestedField> fields = schema.columns();
        MessageType parquet = ParquetSchemaUtil.convert(schema, "table");
        Limits limits = new Limits(
                number(properties, PARQUET_PAGE_SIZE_BYTES, PARQUET_PAGE_SIZE_BYTES_DEFAULT),
                number(properties, PARQUET_PAGE_ROW_LIMIT, PARQUET_PAGE_ROW_LIMIT_DEFAULT),
                number(properties, PARQUET_DICT_SIZE_BYTES, PARQUET_DICT_SIZE_BYTES_DEFAULT));
        PageBuffer[] columns = new PageBuffer[fields.size()];
        List<ColumnDescriptor> descriptors = parquet.getColumns();
        for (int at = 0; at < columns.length; at++) {
            columns[at] = buffer(descriptors.get(at), at, fields.get(at).type(), rows.apply(at).dataType(), limits);
        }
        Map<String, String> ofFile = new HashMap<>(metadata);
        ofFile.put("iceberg.schema", SchemaParser.toJson(schema));
        ofFile.put(ENCODER, "columns");
        return new ColumnarAppender(
                new TableOutput(file.encryptingOutputFile()),
                parquet,
                columns,
                new RowGroups(
                        number(properties, PARQUET_ROW_GROUP_SIZE_BYTES, PARQUET_ROW_GROUP_SIZE_BYTES_DEFAULT),
                        number(
                                properties,
                                PARQUET_ROW_GROUP_CHECK_MIN_RECORD_COUNT,
                                PARQUET_ROW_GROUP_CHECK_MIN_RECORD_COUNT_DEFAULT),
                        number(
                                properties,
                                PARQUET_ROW_GROUP_CHECK_MAX_RECORD_COUNT,
                                PARQUET_ROW_GROUP_CHECK_MAX_RECORD_COUNT_DEFAULT)),
                new Zstd(Integer.parseInt(properties.getOrDefault(PARQUET_COMPRESSION_LEVEL, LEVEL))),
                ofFile,
                metricsConfig);
    }

    /** Returns why Iceberg's own writer has to write rows of this type; null if it does not have to. */
    static String refusal(Schema schema, StructType rows, Map<String, String> properties) {
        for (String name : properties.keySet()) {
            boolean isUnknown = name.startsWith(WRITER_PROPERTIES) && !KNOWN_PROPERTIES.contains(name);
            if (isUnknown || name.startsWith("parquet.")) {
                return "the table has the property " + name;
            }
        }
        String codec = properties.getOrDefault(PARQUET_COMPRESSION, PARQUET_COMPRESSION_DEFAULT);
        if (!codec.toLowerCase(Locale.ROOT).equals("zstd")) {
            return "the table's files are compressed with " + codec;
        }
        List<Types.NestedField> fields = schema.columns();
        if (fields.size() != rows.size() || fields.isEmpty()) {
            return "the rows have other columns than the table";
        }
        for (int at = 0; at < fields.size(); at++) {
            Types.NestedField field = fields.get(at);
            if (!takes(field.type(), rows.apply(at).dataType())) {
                return "the column " + field.name() + " is of type " + rows.apply(at).dataType().simpleString();
            }
            // The metrics of columns are chosen by name, and the footer has the name that Parquet allows.
            if (!AvroSchemaUtil.makeCompatibleName(field.name()).equals(field.name())) {
                return "the column " + field.name() + " has another name in Parquet";
            }
        }
        return null;
    }

    private static int number(Map<String, String> properties, String name, int otherwise) {
        int number = PropertyUtil.propertyAsInt(properties, name, otherwise);
        if (number <= 0) {
            throw new IllegalArgumentException(name + " must be greater than 0, and is " + number);
        }
        return number;
    }

    /** Returns whether values of Spark's type in a row are stored as this type of Iceberg's. */
    private static boolean takes(Type type, DataType row) {
        return switch (type.typeId()) {
            case BOOLEAN -> row instanceof BooleanType;
            case INTEGER -> row instanceof IntegerType || row instanceof ShortType || row instanceof ByteType;
            case LONG -> row instanceof LongType;
            case FLOAT -> row instanceof FloatType;
            case DOUBLE -> row instanceof DoubleType;
            case DATE -> row instanceof DateType;
            case TIMESTAMP -> row instanceof TimestampType || row instanceof TimestampNTZType;
            case STRING, UUID -> row instanceof StringType;
            case BINARY, FIXED -> row instanceof BinaryType;
            case DECIMAL -> row instanceof DecimalType own
                    && own.precision() == ((Types.DecimalType) type).precision()
                    && own.scale() == ((Types.DecimalType) type).scale();
            default -> false;
        };
    }

    private static PageBuffer buffer(ColumnDescriptor column, int field, Type type, DataType row, Limits limits) {
        return switch (type.typeId()) {
            case STRING -> new BytesBuffer(column, field, limits, BytesBuffer.Kind.TEXT);
            case BINARY, FIXED -> new BytesBuffer(column, field, limits, BytesBuffer.Kind.BYTES);
            case UUID -> new BytesBuffer(column, field, limits, BytesBuffer.Kind.UUID);
            case DECIMAL -> switch (column.getPrimitiveType().getPrimitiveTypeName()) {
                case INT32, INT64 -> new FixedBuffer(column, field, limits, FixedBuffer.Kind.DECIMAL);
                default -> new BytesBuffer(column, field, limits, BytesBuffer.Kind.DECIMAL);
            };
            default -> new FixedBuffer(column, field, limits, kind(type, row));
        };
    }

    private static FixedBuffer.Kind kind(Type type, DataType row) {
        return switch (type.typeId()) {
            case BOOLEAN -> FixedBuffer.Kind.BOOLEAN;
            case FLOAT -> FixedBuffer.Kind.FLOAT;
            case DOUBLE -> FixedBuffer.Kind.DOUBLE;
            case LONG, TIMESTAMP -> FixedBuffer.Kind.LONG;
            default -> row instanceof ShortType
                    ? FixedBuffer.Kind.SHORT
                    : row instanceof ByteType ? FixedBuffer.Kind.BYTE : FixedBuffer.Kind.INT;
        };
    }
}
