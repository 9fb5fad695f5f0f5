package io.lakefeed.upsert;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;

class KeyHashTest {
    private static InternalRow row(Object... values) {
        return new GenericInternalRow(values);
    }

    private static UTF8String text(String value) {
        return UTF8String.fromString(value);
    }

    private static StructType columns(DataType... types) {
        StructType columns = new StructType();
        for (int at = 0; at < types.length; at++) {
            columns = columns.add("c" + at, types[at]);
        }
        return columns;
    }

    private static KeyHash of(DataType... types) {
        StructType columns = columns(types);
        return KeyHash.of(columns, List.of(columns.fieldNames()));
    }

    private static List<Number> hashed(KeyHash hash, Object... values) {
        hash.hash(row(values));
        return List.of(hash.high(), hash.low());
    }

    @Test
    void keysDifferIfOnlyTheBoundaryBetweenTheirTextsDiffers() {
        KeyHash hash = of(DataTypes.StringType, DataTypes.StringType);
        assertNotEquals(hashed(hash, text("ab"), text("c")), hashed(hash, text("a"), text("bc")));
        assertEquals(hashed(hash, text("ab"), text("c")), hashed(hash, text("ab"), text("c")));
    }

    @Test
    void manyKeysOfEachKindHaveDistinctHashes() {
        KeyHash whole = of(DataTypes.IntegerType);
        KeyHash texts = of(DataTypes.StringType);
        KeyHash several = of(DataTypes.ShortType, DataTypes.BinaryType, DataTypes.BooleanType);
        Set<List<Number>> seen = new HashSet<>();
        IntStream.range(0, 50_000).forEach(at -> {
            assertTrue(seen.add(hashed(whole, at - 25_000)));
            assertTrue(seen.add(hashed(texts, text("x".repeat(at % 40) + at))));
            assertTrue(seen.add(hashed(several, (short) (at % 1000), new byte[at / 1000], at % 2 == 0)));
        });
    }

    @Test
    void longTextsAreHashedCompletely() {
        KeyHash hash = of(DataTypes.StringType);
        String large = "k".repeat(10_000);
        assertNotEquals(hashed(hash, text(large + "1")), hashed(hash, text(large + "2")));
        assertEquals(hashed(hash, text(large + "1")), hashed(hash, text(large + "1")));
    }

    @Test
    void aDecimalHasTheSameHashInEveryPrecision() {
        StructType small = columns(DataTypes.createDecimalType(10, 2));
        StructType large = columns(DataTypes.createDecimalType(38, 2));
        KeyHash one = KeyHash.of(small, List.of("c0"));
        KeyHash other = one.on(large, List.of("c0"));
        Decimal price = Decimal.apply(new BigDecimal("-12.30"), 10, 2);
        assertEquals(hashed(one, price), hashed(other, Decimal.apply(new BigDecimal("-12.30"), 38, 2)));
        assertFalse(one.hasTypesOf(other));
    }

    @Test
    void eachIndexHasItsOwnHashFunction() {
        assertNotEquals(hashed(of(DataTypes.StringType), text("a")), hashed(of(DataTypes.StringType), text("a")));
    }

    @Test
    void aRowWithANullKeyColumnHasNoKey() {
        KeyHash hash = of(DataTypes.LongType, DataTypes.StringType);
        assertTrue(hash.lacksKey(row(1L, null)));
        assertFalse(hash.lacksKey(row(1L, text(""))));
    }
}
