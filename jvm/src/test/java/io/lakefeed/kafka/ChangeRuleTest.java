package io.lakefeed.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigInteger;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;

class ChangeRuleTest {
    private static InternalRow row(Object... values) {
        return new GenericInternalRow(values);
    }

    private static boolean deletes(DataType type, Object value, Object... marking) {
        ChangeRule.Options options =
                new ChangeRule.Options("deleted", false, Map.of("OP", List.of(marking)), Map.of());
        return new ChangeRule(options, new StructType().add("id", "bigint").add("op", type))
                .deletes(row(1L, value), false);
    }

    @Test
    void aRowIsDeletedIfItsColumnHasOneOfTheConfiguredValues() {
        assertTrue(deletes(DataTypes.StringType, UTF8String.fromString("d"), "x", "d"));
        assertFalse(deletes(DataTypes.StringType, UTF8String.fromString("D"), "x", "d"));
        assertFalse(deletes(DataTypes.StringType, null, "d"));
        assertTrue(deletes(DataTypes.BooleanType, true, true));
        assertFalse(deletes(DataTypes.BooleanType, false, true));
    }

    @Test
    void numbersOfEveryTypeAreComparedExactly() {
        assertTrue(deletes(DataTypes.ByteType, (byte) -1, 7, -1));
        assertTrue(deletes(DataTypes.LongType, Long.MAX_VALUE, Long.MAX_VALUE));
        assertFalse(deletes(DataTypes.LongType, 0L, BigInteger.ONE.shiftLeft(64)));
        assertTrue(deletes(DataTypes.createDecimalType(9, 2), Decimal.apply("3.00"), 3));
        assertFalse(deletes(DataTypes.createDecimalType(9, 2), Decimal.apply("3.01"), 3));
        assertTrue(deletes(DataTypes.DoubleType, 3.0, 3));
        assertFalse(deletes(DataTypes.DoubleType, Double.NaN, 3));
    }

    @Test
    void aTombstoneDeletesARowOnlyIfTheRuleAllowsIt() {
        StructType rows = new StructType().add("id", "bigint");
        for (boolean tombstones : new boolean[] {true, false}) {
            ChangeRule rule = new ChangeRule(new ChangeRule.Options("deleted", tombstones, Map.of(), Map.of()), rows);
            assertEquals(tombstones, rule.deletes(row((Object) null), true));
            assertFalse(rule.deletes(row(1L), false));
        }
    }

    @Test
    void aNullKeyIsAnErrorAndAKeyThatIsNotAColumnIsIgnored() {
        Map<String, String> errors = Map.of("ID", "ID is null", "other", "other is null");
        StructType rows = new StructType().add("id", "bigint").add("city", "string");
        ChangeRule rule = new ChangeRule(new ChangeRule.Options("deleted", false, Map.of(), errors), rows);
        assertEquals("ID is null", rule.noKey(row(null, null)));
        assertNull(rule.noKey(row(1L, null)));
    }
}
