package io.lakefeed.parquet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.Schema;
import org.apache.iceberg.encryption.EncryptedFiles;
import org.apache.iceberg.inmemory.InMemoryOutputFile;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.FileAppender;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.spark.data.SparkParquetReaders;
import org.apache.iceberg.spark.data.SparkParquetWriters;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;

/** Compares files of the columnar appender with files of Iceberg's own appender. */
class ColumnarFileTest {
    private static final int SCHEMAS = Integer.parseInt(System.getenv().getOrDefault("LAKEFEED_TESTS_SCHEMAS", "150"));
    private static final Map<String, String> ZSTD = Map.of("write.parquet.compression-codec", "zstd");

    private record Pair(Written columnar, Written iceberg) {}

    private record Written(Metrics metrics, List<Long> splitOffsets, List<UnsafeRow> rows, long length) {}

    @Test
    @SuppressWarnings("deprecation") // Only this deprecated way to choose metrics works without a table.
    void randomFilesHaveTheSameRowsAndMetricsAsFilesOfIceberg() {
        for (int seed = 0; seed < SCHEMAS; seed++) {
            Random random = new Random(seed);
            Schema schema = RandomRows.schema(random);
            StructType type = SparkSchemaUtil.convert(schema);
            List<UnsafeRow> rows = RandomRows.of(schema, type, random, random.nextInt(1_500));
            Map<String, String> properties = RandomRows.properties(random);
            MetricsConfig metrics = MetricsConfig.fromProperties(RandomRows.metrics(random, schema));
            String what = "seed " + seed + ", " + schema + ", " + properties;
            Pair written = assertSame(what, schema, type, rows, properties, metrics);
            assertEquals(rows, written.columnar.rows, what);
        }
    }

    private static Pair assertSame(
            String what,
            Schema schema,
            StructType type,
            List<UnsafeRow> rows,
            Map<String, String> properties,
            MetricsConfig metrics) {
        Written iceberg = written(icebergs(new InMemoryOutputFile(), schema, type, properties, metrics), rows);
        Written columnar = written(columnar(schema, type, properties, metrics), rows);
        Metrics expected = iceberg.metrics;
        Metrics actual = columnar.metrics;
        assertEquals(expected.recordCount(), actual.recordCount(), what);
        if (expected.recordCount() > 0) {
            assertEquals(expected.valueCounts(), actual.valueCounts(), what);
            assertEquals(expected.nullValueCounts(), actual.nullValueCounts(), what);
            assertEquals(expected.nanValueCounts(), actual.nanValueCounts(), what);
            boolean single = iceberg.splitOffsets.size() == 1 && columnar.splitOffsets.size() == 1;
            assertEquals(
                    comparable(expected.lowerBounds(), schema, single), comparable(actual.lowerBounds(), schema, single), what);
            assertEquals(
                    comparable(expected.upperBounds(), schema, single), comparable(actual.upperBounds(), schema, single), what);
            assertEquals(expected.columnSizes().keySet(), actual.columnSizes().keySet(), what);
        }
        assertEquals(iceberg.rows, columnar.rows, what);
        return new Pair(columnar, iceberg);
    }

    /**
     * Returns the bounds that must be equal although the row groups of the two files end at different rows. Bounds of
     * UUIDs depend on row groups: see {@link #boundsOfUuidsDependOnTheRowGroups}.
     */
    private static Map<Integer, ByteBuffer> comparable(Map<Integer, ByteBuffer> bounds, Schema schema, boolean single) {
        Map<Integer, ByteBuffer> found = new HashMap<>(bounds);
        if (!single) {
            found.keySet().removeIf(id -> schema.findType(id).typeId() == Type.TypeID.UUID);
        }
        return found;
    }

    /** An appender and the file that it writes. */
    private record Writing(FileAppender<InternalRow> appender, InMemoryOutputFile file, Schema schema, StructType type) {}

    private static Writing icebergs(
            InMemoryOutputFile file, Schema schema, StructType type, Map<String, String> properties, MetricsConfig metrics) {
        try {
            FileAppender<InternalRow> appender = Parquet.write(file)
                    .schema(schema)
                    .setAll(properties)
                    .metricsConfig(metrics)
                    .createWriterFunc((columns, parquet) -> SparkParquetWriters.buildWriter(columns, parquet, type))
                    .build();
            return new Writing(appender, file, schema, type);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }

    private static Writing columnar(Schema schema, StructType type, Map<String, String> properties, MetricsConfig metrics) {
        InMemoryOutputFile file = new InMemoryOutputFile();
        FileAppender<InternalRow> appender = ColumnarFile.appender(
                EncryptedFiles.plainAsEncryptedOutput(file), schema, type, properties, Map.of(), metrics);
        assertNotNull(appender);
        return new Writing(appender, file, schema, type);
    }

    private static Written written(Writing writing, List<UnsafeRow> rows) {
        try {
            writing.appender.addAll(rows.stream().map(InternalRow.class::cast).iterator());
            writing.appender.close();
            List<UnsafeRow> read = new ArrayList<>();
            if (!rows.isEmpty()) {
                assertEquals(writing.file.toByteArray().length, writing.appender.length());
                UnsafeProjection projection = UnsafeProjection.create(writing.type);
                try (CloseableIterable<InternalRow> found = Parquet.read(writing.file.toInputFile())
                        .project(writing.schema)
                        .createReaderFunc(parquet -> SparkParquetReaders.buildReader(writing.schema, parquet))
                        .build()) {
                    found.forEach(row -> read.add(projection.apply(row).copy()));
                }
            }
            return new Written(writing.appender.metrics(), writing.appender.splitOffsets(), read, writing.appender.length());
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }

    /**
     * Parquet orders UUIDs as unsigned bytes within a row group; Iceberg merges the row groups' bounds as signed longs.
     * If this test fails, Iceberg uses one order for both, so the other tests can compare the bounds of all files.
     */
    @Test
    void boundsOfUuidsDependOnTheRowGroups() {
        Schema schema = new Schema(Types.NestedField.optional(1, "id", Types.UUIDType.get()));
        StructType type = SparkSchemaUtil.convert(schema);
        // The first half of the ids begins with 1, the second half with f.
        List<UnsafeRow> rows = rows(type, 2_000, at -> UTF8String.fromString(
                (at < 1_000 ? "1" : "f") + "0000000-0000-0000-0000-" + String.format("%012x", at)));
        Map<String, String> small = new HashMap<>(ZSTD);
        small.put("write.parquet.row-group-size-bytes", "1000");
        small.put("write.parquet.row-group-check-max-record-count", "100");
        MetricsConfig metrics = MetricsConfig.getDefault();
        Written one = written(icebergs(new InMemoryOutputFile(), schema, type, ZSTD, metrics), rows);
        Written several = written(icebergs(new InMemoryOutputFile(), schema, type, small, metrics), rows);
        assertEquals(1, one.splitOffsets.size());
        assertTrue(several.splitOffsets.size() > 1, several.splitOffsets + "");
        assertEquals((byte) 0x10, one.metrics.lowerBounds().get(1).get(0));
        assertEquals((byte) 0xf0, several.metrics.lowerBounds().get(1).get(0));
        // With the same row groups, both appenders give the same bounds.
        assertSame("one row group", schema, type, rows, ZSTD, metrics);
    }

    @Test
    void filesAreAtMostTwoPercentLargerThanFilesOfIceberg() {
        Schema schema = new Schema(
                Types.NestedField.optional(1, "number", Types.LongType.get()),
                Types.NestedField.optional(2, "flag", Types.StringType.get()),
                Types.NestedField.optional(3, "price", Types.DoubleType.get()),
                Types.NestedField.optional(4, "text", Types.StringType.get()),
                Types.NestedField.optional(5, "same", Types.IntegerType.get()));
        StructType type = SparkSchemaUtil.convert(schema);
        Random random = new Random(1);
        List<UnsafeRow> rows = rows(type, 100_000, at -> new Object[] {
            (long) random.nextInt(300),
            UTF8String.fromString(random.nextInt(50) == 0 ? "Y" : "N"),
            random.nextInt(2_000) / 100.0,
            random.nextInt(10) == 0 ? null : UTF8String.fromString("text " + random.nextLong()),
            7
        });
        Pair written = assertSame("", schema, type, rows, ZSTD, MetricsConfig.getDefault());
        assertTrue(written.columnar.length <= written.iceberg.length * 1.02, written.columnar.length + " bytes");
    }

    @Test
    void aRowGroupEndsWhenItIsFull() {
        Schema schema = new Schema(Types.NestedField.optional(1, "text", Types.StringType.get()));
        StructType type = SparkSchemaUtil.convert(schema);
        Random random = new Random(2);
        List<UnsafeRow> rows = rows(type, 50_000, at -> UTF8String.fromString(Long.toHexString(random.nextLong())));
        Map<String, String> properties = new HashMap<>(ZSTD);
        properties.put("write.parquet.row-group-size-bytes", "200000");
        Written columnar = written(columnar(schema, type, properties, MetricsConfig.getDefault()), rows);
        assertTrue(columnar.splitOffsets.size() >= 3, columnar.splitOffsets + "");
        assertEquals(rows, columnar.rows);
    }

    @Test
    void rowGroupsOfHugeRowsEndWhereIcebergsEnd() {
        Schema schema = new Schema(Types.NestedField.optional(1, "bytes", Types.BinaryType.get()));
        StructType type = SparkSchemaUtil.convert(schema);
        byte[] value = new byte[100_000];
        Random random = new Random(3);
        List<UnsafeRow> rows = rows(type, 300, at -> {
            random.nextBytes(value);
            return value.clone();
        });
        Map<String, String> properties = new HashMap<>(ZSTD);
        properties.put("write.parquet.row-group-size-bytes", "5000000");
        Pair written = assertSame("", schema, type, rows, properties, MetricsConfig.getDefault());
        assertEquals(written.iceberg.splitOffsets.size(), written.columnar.splitOffsets.size());
        assertEquals(3, written.columnar.splitOffsets.size());
    }

    /**
     * Returns {@code count} rows; {@code values} returns the values of a row, or the value of a row with one column.
     */
    private static List<UnsafeRow> rows(StructType type, int count, IntFunction<Object> values) {
        UnsafeProjection projection = UnsafeProjection.create(type);
        return IntStream.range(0, count)
                .mapToObj(values)
                .map(row -> row instanceof Object[] several ? several : new Object[] {row})
                .map(row -> projection.apply(new GenericInternalRow(row)).copy())
                .toList();
    }

    @Test
    void aTableIsRefusedForTheReasonsForWhichItsFilesAreRefused() {
        String flat = new StructType().add("number", "long").json();
        String nested = new StructType().add("list", "array<struct<a:long,b:variant>>").json();
        assertNull(ColumnarModel.refusal(flat, Map.of()));
        assertNotNull(ColumnarModel.refusal(flat, Map.of("write.format.default", "orc")));
        assertNotNull(ColumnarModel.refusal(flat, Map.of("write.parquet.compression-codec", "brotli")));
        assertEquals("the column list.element.b is of type variant", ColumnarModel.refusal(nested, Map.of()));
    }

    @Test
    void icebergWritesTablesWithUnknownPropertiesAndTypes() {
        Schema flat = new Schema(Types.NestedField.optional(1, "number", Types.LongType.get()));
        assertNull(refusal(flat, Map.of()));
        assertNull(refusal(flat, Map.of("write.parquet.page-row-limit", "10", "write.format.default", "parquet")));
        assertNotNull(refusal(flat, Map.of("write.parquet.bloom-filter-enabled.column.number", "true")));
        assertNotNull(refusal(flat, Map.of("write.parquet.page-version", "v2")));
        assertNotNull(refusal(flat, Map.of("parquet.enable.dictionary", "false")));
        assertNull(refusal(flat, Map.of("write.parquet.compression-codec", "SNAPPY")));
        assertNotNull(refusal(flat, Map.of("write.parquet.compression-codec", "brotli")));
        Schema twice = new Schema(
                Types.NestedField.optional(1, "a b", Types.LongType.get()),
                Types.NestedField.optional(2, "a_x20b", Types.LongType.get()));
        assertEquals("two columns have the name a_x20b in Parquet", refusal(twice, Map.of()));
        Schema variant = new Schema(Types.NestedField.optional(1, "any", Types.VariantType.get()));
        assertNotNull(refusal(variant, Map.of()));
    }

    private static String refusal(Schema schema, Map<String, String> properties) {
        Map<String, String> all = new HashMap<>(ZSTD);
        all.putAll(properties);
        return ColumnarFile.refusal(schema, SparkSchemaUtil.convert(schema), all);
    }

    @Test
    void aNullInARequiredColumnIsRefused() {
        Schema schema = new Schema(Types.NestedField.required(1, "number", Types.LongType.get()));
        Writing writing = columnar(schema, SparkSchemaUtil.convert(schema), ZSTD, MetricsConfig.getDefault());
        InternalRow row = new GenericInternalRow(new Object[] {null});
        assertThrows(IllegalArgumentException.class, () -> writing.appender.add(row));
    }
}
