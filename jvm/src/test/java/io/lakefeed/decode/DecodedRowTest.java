package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class DecodedRowTest {
    @ParameterizedTest(name = "{0} fields")
    @ValueSource(ints = {1, 63, 64, 65, 200})
    void eachFieldHasANullBit(int fields) {
        DecodedRow row = new DecodedRow(fields);
        for (int at = 0; at < fields; at += 3) {
            row.setNullAt(at);
        }
        for (int at = 0; at < fields; at++) {
            assertEquals(at % 3 == 0, row.isNullAt(at), "field " + at);
        }
        row.reset();
        for (int at = 0; at < fields; at++) {
            assertFalse(row.isNullAt(at), "field " + at);
        }
    }

    @Test
    void numbersAreStoredExactly() {
        DecodedRow row = new DecodedRow(5);
        row.put(0, -1.5);
        row.put(1, Float.MIN_VALUE);
        row.put(2, Long.MIN_VALUE);
        row.put(3, -7L);
        row.put(4, 1L);
        assertEquals(-1.5, row.getDouble(0));
        assertEquals(Float.MIN_VALUE, row.getFloat(1));
        assertEquals(Long.MIN_VALUE, row.getLong(2));
        assertEquals(-7, row.getInt(3));
        assertEquals(-7, row.getShort(3));
        assertEquals(-7, row.getByte(3));
        assertTrue(row.getBoolean(4));
        assertEquals(-1.5, row.get(0, DataTypes.DoubleType));
        assertEquals(-7, row.get(3, DataTypes.DateType));
        assertEquals(Long.MIN_VALUE, row.get(2, DataTypes.TimestampType));
    }

    @Test
    void nanIsStored() {
        DecodedRow row = new DecodedRow(2);
        row.put(0, Double.NaN);
        row.put(1, Float.NaN);
        assertTrue(Double.isNaN(row.getDouble(0)));
        assertTrue(Float.isNaN(row.getFloat(1)));
    }

    @Test
    void aNullReplacesTheValueOfTheLastRecord() {
        DecodedRow row = new DecodedRow(1);
        row.put(0, (Object) UTF8String.fromString("before"));
        row.setNullAt(0);
        assertNull(row.getUTF8String(0));
        assertNull(row.get(0, DataTypes.StringType));
    }

    @Test
    void updateAcceptsBoxedValues() {
        DecodedRow row = new DecodedRow(5);
        row.update(0, 5);
        row.update(1, 5L);
        row.update(2, 1.5);
        row.update(3, 1.5f);
        row.update(4, true);
        assertEquals(5, row.getInt(0));
        assertEquals(5L, row.getLong(1));
        assertEquals(1.5, row.getDouble(2));
        assertEquals(1.5f, row.getFloat(3));
        assertTrue(row.getBoolean(4));
        row.update(0, null);
        assertTrue(row.isNullAt(0));
        row.update(0, 6);
        assertFalse(row.isNullAt(0));
    }

    @Test
    void aCopyIsNotChangedByTheNextRecord() {
        DecodedRow row = new DecodedRow(2);
        row.put(0, 1L);
        row.setNullAt(1);
        InternalRow copy = row.copy();
        row.reset();
        row.put(0, 2L);
        assertEquals(1, copy.getLong(0));
        assertTrue(copy.isNullAt(1));
        assertEquals(2, copy.numFields());
    }
}
