package io.lakefeed.parquet;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.apache.iceberg.Schema;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.TypeUtil;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Creates random schemas, table properties and rows, with values that encoders often get wrong. */
final class RandomRows {
    private static final double[] DOUBLES = {
        0.0, -0.0, Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, Double.MIN_VALUE, -Double.MAX_VALUE, 1.5
    };
    private static final long[] LONGS = {0, 1, -1, Long.MIN_VALUE, Long.MAX_VALUE, 1L << 32, -62_135_596_800_000_000L};
    private static final String[] TEXTS = {
        "", "a", "\u0000", "é", "\uD83D\uDE00".repeat(20), "\uDBFF\uDFFF".repeat(17), "z".repeat(16), "z".repeat(17)
    };

    /** Names of columns; some are spelled differently in Parquet files. */
    private static final String[] NAMES = {"c", "c", "c", "a column ", "é", "1-", "日本", "x_x20", "element", "key`"};

    private static final String[] CODECS = {"zstd", "zstd", "snappy", "gzip", "uncompressed", "lz4_raw"};
    private static final int DEEPEST = 3;

    private final Random random;
    private int lastId = 5_000;

    private RandomRows(Random random) {
        this.random = random;
    }

    static Schema schema(Random random) {
        return new Schema(new RandomRows(random).fields(1 + random.nextInt(8), 0));
    }

    private List<Types.NestedField> fields(int count, int depth) {
        List<Types.NestedField> fields = new ArrayList<>();
        for (int at = 0; at < count; at++) {
            String name = NAMES[random.nextInt(NAMES.length)] + at;
            Type type = type(depth);
            fields.add(
                    random.nextInt(4) == 0
                            ? Types.NestedField.required(id(), name, type)
                            : Types.NestedField.optional(id(), name, type));
        }
        return fields;
    }

    /** Returns a column's id, which differs from its position, as in a table whose columns have changed. */
    private int id() {
        lastId -= 3;
        return lastId;
    }

    private Type type(int depth) {
        int kind = random.nextInt(depth < DEEPEST ? 16 : 10);
        boolean optional = random.nextInt(3) > 0;
        return switch (kind) {
            case 10, 11 -> Types.StructType.of(fields(1 + random.nextInt(3), depth + 1));
            case 12, 13 -> {
                Type element = type(depth + 1);
                yield optional ? Types.ListType.ofOptional(id(), element) : Types.ListType.ofRequired(id(), element);
            }
            case 14 -> {
                Type key = primitive(random);
                Type value = type(depth + 1);
                yield optional
                        ? Types.MapType.ofOptional(id(), id(), key, value)
                        : Types.MapType.ofRequired(id(), id(), key, value);
            }
            default -> primitive(random);
        };
    }

    private static Type primitive(Random random) {
        return switch (random.nextInt(13)) {
            case 0 -> Types.BooleanType.get();
            case 1 -> Types.IntegerType.get();
            case 2 -> Types.LongType.get();
            case 3 -> Types.FloatType.get();
            case 4 -> Types.DoubleType.get();
            case 5 -> Types.DateType.get();
            case 6 -> Types.TimestampType.withZone();
            case 7 -> Types.TimestampType.withoutZone();
            case 8 -> Types.BinaryType.get();
            case 9 -> Types.FixedType.ofLength(1 + random.nextInt(20));
            case 10 -> Types.UUIDType.get();
            case 11 -> {
                int precision = 1 + random.nextInt(38);
                yield Types.DecimalType.of(precision, random.nextInt(precision + 1));
            }
            default -> Types.StringType.get();
        };
    }

    static Map<String, String> properties(Random random) {
        Map<String, String> all = new HashMap<>();
        some(random, all, "write.parquet.page-row-limit", 1 + random.nextInt(400));
        some(random, all, "write.parquet.page-size-bytes", 100 + random.nextInt(5_000));
        some(random, all, "write.parquet.dict-size-bytes", 100 + random.nextInt(5_000));
        some(random, all, "write.parquet.row-group-size-bytes", 1_000 + random.nextInt(50_000));
        String codec = CODECS[random.nextInt(CODECS.length)];
        all.put("write.parquet.compression-codec", codec);
        if (codec.equals("zstd")) {
            some(random, all, "write.parquet.compression-level", 1 + random.nextInt(5));
        }
        return all;
    }

    private static void some(Random random, Map<String, String> all, String name, int value) {
        if (random.nextBoolean()) {
            all.put(name, Integer.toString(value));
        }
    }

    static Map<String, String> metrics(Random random, Schema schema) {
        Map<String, String> all = new HashMap<>();
        String[] modes = {"none", "counts", "truncate(16)", "truncate(3)", "full"};
        for (int id : TypeUtil.getProjectedIds(schema)) {
            if (random.nextBoolean()) {
                all.put("write.metadata.metrics.column." + schema.findColumnName(id), modes[random.nextInt(modes.length)]);
            }
        }
        return all;
    }

    /** Returns rows whose columns have few or many distinct values, runs of equal values, and nulls. */
    static List<UnsafeRow> of(Schema schema, StructType type, Random random, int count) {
        List<Supplier<Object>> columns = new ArrayList<>();
        for (Types.NestedField field : schema.columns()) {
            columns.add(column(field, random));
        }
        UnsafeProjection projection = UnsafeProjection.create(type);
        List<UnsafeRow> rows = new ArrayList<>();
        for (int at = 0; at < count; at++) {
            Object[] values = columns.stream().map(Supplier::get).toArray();
            rows.add(projection.apply(new GenericInternalRow(values)).copy());
        }
        return rows;
    }

    private static Supplier<Object> column(Types.NestedField field, Random random) {
        int nulls = field.isRequired() ? 0 : new int[] {0, 0, 1, 20, 100}[random.nextInt(5)];
        int distinct = new int[] {1, 3, 50, 1_000_000}[random.nextInt(4)];
        int runs = random.nextInt(3) == 0 ? 1 + random.nextInt(40) : 1;
        List<Object> pool = new ArrayList<>();
        Object[] last = {null};
        return () -> {
            if (last[0] == null || random.nextInt(runs) == 0) {
                if (pool.size() < distinct) {
                    pool.add(value(field.type(), random));
                    last[0] = pool.get(pool.size() - 1);
                } else {
                    last[0] = pool.get(random.nextInt(distinct));
                }
            }
            return random.nextInt(100) < nulls ? null : last[0];
        };
    }

    private static Object value(Type type, Random random) {
        boolean edge = random.nextInt(5) == 0;
        return switch (type.typeId()) {
            case BOOLEAN -> random.nextBoolean();
            case INTEGER, DATE -> edge ? (int) LONGS[random.nextInt(LONGS.length)] : random.nextInt(100_000);
            case LONG, TIMESTAMP -> edge ? LONGS[random.nextInt(LONGS.length)] : random.nextLong();
            case FLOAT -> edge ? (float) DOUBLES[random.nextInt(DOUBLES.length)] : random.nextFloat();
            case DOUBLE -> edge ? DOUBLES[random.nextInt(DOUBLES.length)] : random.nextGaussian();
            case BINARY -> bytes(random, edge ? random.nextInt(2) : random.nextInt(60));
            case FIXED -> bytes(random, ((Types.FixedType) type).length());
            case UUID -> UTF8String.fromString(new UUID(random.nextLong(), random.nextLong()).toString());
            case DECIMAL -> decimal((Types.DecimalType) type, random, edge);
            case STRUCT -> new GenericInternalRow(type.asStructType().fields().stream()
                    .map(field -> item(field.type(), field.isOptional(), random))
                    .toArray());
            case LIST -> array(type.asListType().elementType(), type.asListType().isElementOptional(), length(random), random);
            case MAP -> {
                int length = length(random);
                Types.MapType map = type.asMapType();
                yield new ArrayBasedMapData(
                        array(map.keyType(), false, length, random),
                        array(map.valueType(), map.isValueOptional(), length, random));
            }
            default -> UTF8String.fromString(text(random, edge));
        };
    }

    private static Object item(Type type, boolean optional, Random random) {
        return optional && random.nextInt(4) == 0 ? null : value(type, random);
    }

    private static int length(Random random) {
        return random.nextInt(400) == 0 ? 300 : random.nextInt(4);
    }

    private static GenericArrayData array(Type type, boolean optional, int length, Random random) {
        return new GenericArrayData(
                IntStream.range(0, length).mapToObj(at -> item(type, optional, random)).toArray());
    }

    private static String text(Random random, boolean edge) {
        if (edge) {
            return random.nextInt(300) == 0 ? "huge ".repeat(40_000) : TEXTS[random.nextInt(TEXTS.length)];
        }
        return "text " + random.nextInt(10_000) + "x".repeat(random.nextInt(12));
    }

    private static byte[] bytes(Random random, int length) {
        byte[] value = new byte[length];
        if (random.nextInt(4) > 0) {
            random.nextBytes(value);
        } else {
            java.util.Arrays.fill(value, (byte) -1);
        }
        return value;
    }

    private static Decimal decimal(Types.DecimalType type, Random random, boolean edge) {
        BigInteger most = BigInteger.TEN.pow(type.precision()).subtract(BigInteger.ONE);
        BigInteger unscaled = edge ? most : new BigInteger(130, random).mod(most);
        unscaled = random.nextBoolean() ? unscaled.negate() : unscaled;
        return Decimal.apply(new BigDecimal(unscaled, type.scale()), type.precision(), type.scale());
    }
}
