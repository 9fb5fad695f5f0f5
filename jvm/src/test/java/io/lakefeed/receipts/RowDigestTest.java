package io.lakefeed.receipts;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.Schema;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;

class RowDigestTest {
    private static final int FIRST = 10;

    private static UTF8String text(String value) {
        return UTF8String.fromString(value);
    }

    private static Schema schema(Type... types) {
        List<Types.NestedField> fields = new java.util.ArrayList<>(List.of(
                Types.NestedField.optional(1, "kafka_topic", Types.StringType.get()),
                Types.NestedField.optional(2, "kafka_partition", Types.IntegerType.get()),
                Types.NestedField.optional(3, "kafka_offset", Types.LongType.get())));
        for (int at = 0; at < types.length; at++) {
            fields.add(Types.NestedField.optional(FIRST + at, "c" + at, types[at]));
        }
        return new Schema(fields);
    }

    private static InternalRow row(long offset, Object... values) {
        Object[] all = new Object[3 + values.length];
        all[0] = text("orders");
        all[1] = 4;
        all[2] = offset;
        System.arraycopy(values, 0, all, 3, values.length);
        return new GenericInternalRow(all);
    }

    private static Map<String, long[]> sums(Schema schema, InternalRow... rows) {
        RowDigest digest = new RowDigest(schema, "key".getBytes(), Map.of());
        for (InternalRow row : rows) {
            digest.add(row, digest.topic(row), digest.partition(row), digest.offset(row));
        }
        return digest.sums();
    }

    /** Returns the digest of one value; null if the value adds nothing. */
    private static List<Long> of(Type type, Object value) {
        long[] found = sums(schema(type), row(7, value)).get(String.valueOf(FIRST));
        return found == null ? null : Arrays.stream(found).boxed().toList();
    }

    @Test
    void theSumsDoNotDependOnTheOrderOfRowsAndEachColumnAndPartitionHasASum() {
        Schema schema = schema(Types.StringType.get(), Types.LongType.get());
        InternalRow one = row(1, text("a"), 5L);
        InternalRow two = row(2, text("b"), null);
        Map<String, long[]> forth = sums(schema, one, two);
        Map<String, long[]> back = sums(schema, two, one);
        assertEquals(Set.of("0", "1", "2", "3", "10", "11", "orders/4"), forth.keySet());
        forth.forEach((name, sum) -> assertArrayEquals(sum, back.get(name), name));
        assertEquals(1, forth.get("11")[2]);
        assertArrayEquals(new long[] {2, 1, 2}, Arrays.copyOfRange(forth.get("orders/4"), 2, 5));
        long columns = forth.entrySet().stream().filter(each -> !each.getKey().contains("/")).mapToLong(each -> each.getValue()[0]).sum();
        assertEquals(columns, forth.get("orders/4")[0]);
    }

    @Test
    void swappedValuesChangeOnlyTheSumsOfTheirColumns() {
        Schema schema = schema(Types.LongType.get(), Types.LongType.get(), Types.LongType.get());
        Map<String, long[]> before = sums(schema, row(1, 5L, 6L, 9L), row(2, 7L, 8L, 9L));
        Map<String, long[]> betweenRows = sums(schema, row(1, 7L, 6L, 9L), row(2, 5L, 8L, 9L));
        Map<String, long[]> withinARow = sums(schema, row(1, 6L, 5L, 9L), row(2, 7L, 8L, 9L));
        assertEquals(Set.of("10", "orders/4"), differing(before, betweenRows));
        assertEquals(Set.of("10", "11", "orders/4"), differing(before, withinARow));
    }

    private static Set<String> differing(Map<String, long[]> one, Map<String, long[]> two) {
        Set<String> names = new HashSet<>();
        one.forEach((name, sum) -> {
            if (!Arrays.equals(sum, two.get(name))) {
                names.add(name);
            }
        });
        return names;
    }

    @Test
    void aValueKeepsItsDigestInAWiderType() {
        for (int value : new int[] {0, 1, -1, Integer.MIN_VALUE, Integer.MAX_VALUE}) {
            assertEquals(of(Types.IntegerType.get(), value), of(Types.LongType.get(), (long) value));
        }
        for (float value : new float[] {0f, -0f, 1.1f, Float.NaN, Float.MIN_VALUE, Float.NEGATIVE_INFINITY}) {
            assertEquals(of(Types.FloatType.get(), value), of(Types.DoubleType.get(), (double) value));
        }
        for (String value : List.of("0.00", "-1.05", "9999999.99")) {
            assertEquals(decimal(value, 9), decimal(value, 18));
            assertEquals(decimal(value, 9), decimal(value, 38));
        }
        String wide = "123456789012345678901234567.89";
        assertEquals(decimal(wide, 30), decimal(wide, 38));
    }

    private static List<Long> decimal(String value, int precision) {
        return of(Types.DecimalType.of(precision, 2), Decimal.apply(new BigDecimal(value), precision, 2));
    }

    @Test
    void aNullAddsNothingToADigestEvenInAStruct() {
        assertEquals(null, of(Types.LongType.get(), null));
        Types.NestedField old = Types.NestedField.optional(20, "old", Types.LongType.get());
        Types.NestedField added = Types.NestedField.optional(21, "added", Types.StringType.get());
        List<Long> before = of(Types.StructType.of(old), new GenericInternalRow(new Object[] {1L}));
        assertEquals(before, of(Types.StructType.of(added, old), new GenericInternalRow(new Object[] {null, 1L})));
        assertFalse(before.equals(of(Types.StructType.of(old), new GenericInternalRow(new Object[] {null}))));
        assertTrue(of(Types.StructType.of(old), new GenericInternalRow(new Object[] {null})) != null);
    }

    @Test
    void theOrderOfAListMattersAndTheOrderOfAMapDoesNot() {
        Type list = Types.ListType.ofOptional(20, Types.LongType.get());
        assertFalse(of(list, longs(1L, 2L, null)).equals(of(list, longs(2L, 1L, null))));
        assertFalse(of(list, longs(1L, null)).equals(of(list, longs(1L))));
        Type map = Types.MapType.ofOptional(20, 21, Types.LongType.get(), Types.LongType.get());
        List<Long> one = of(map, new ArrayBasedMapData(longs(1L, 2L), longs(3L, 4L)));
        assertEquals(one, of(map, new ArrayBasedMapData(longs(2L, 1L), longs(4L, 3L))));
        assertFalse(one.equals(of(map, new ArrayBasedMapData(longs(1L, 2L), longs(4L, 3L)))));
    }

    @Test
    void rowsBelowTheFirstOffsetAreLeftOut() {
        Schema schema = schema(Types.LongType.get());
        RowDigest digest = new RowDigest(schema, "key".getBytes(), Map.of("orders/4", 6L, "orders/5", 9L));
        for (InternalRow each : List.of(row(5, 1L), row(6, 2L))) {
            digest.add(each, digest.topic(each), digest.partition(each), digest.offset(each));
        }
        assertEquals(sums(schema, row(6, 2L)).keySet(), digest.sums().keySet());
        sums(schema, row(6, 2L)).forEach((name, words) -> assertArrayEquals(words, digest.sums().get(name), name));
    }

    private static GenericArrayData longs(Object... values) {
        return new GenericArrayData(values);
    }

    @Test
    void textsOfAnyLengthDifferIfAByteDiffers() {
        Set<List<Long>> seen = new HashSet<>();
        int texts = 0;
        for (int length = 0; length < 70; length++) {
            byte[] bytes = new byte[length];
            seen.add(of(Types.BinaryType.get(), bytes.clone()));
            texts++;
            for (int at = 0; at < length; at++) {
                bytes[at] = 1;
                seen.add(of(Types.BinaryType.get(), bytes.clone()));
                assertEquals(of(Types.BinaryType.get(), bytes), of(Types.StringType.get(), UTF8String.fromBytes(bytes)));
                bytes[at] = 0;
                texts++;
            }
        }
        assertEquals(texts, seen.size());
    }
}
