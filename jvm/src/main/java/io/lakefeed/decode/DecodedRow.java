package io.lakefeed.decode;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGettersReader;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.CalendarInterval;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A row that stores numbers without boxing them. A new row has zeros and no nulls; each field must be set.
 *
 * <p>{@code words} has one word per field, for a number; after these, one bit per field, which is set for a null.
 * Values that are not numbers are in {@code objects}.
 */
final class DecodedRow extends SparkRow {
    private static final long serialVersionUID = 1L;

    private final long[] words;
    private final Object[] objects;

    DecodedRow(int fields) {
        this(new long[fields + (fields + 63) / 64], new Object[fields]);
    }

    private DecodedRow(long[] words, Object[] objects) {
        this.words = words;
        this.objects = objects;
    }

    /** Returns the memory of a row with this number of fields, without the values in {@code objects}. */
    static long memory(int fields) {
        return 3L * MemoryBudget.OBJECT + 12L * fields + (fields >> 3);
    }

    /** Makes no field null, as in a new row. */
    void reset() {
        for (int at = objects.length; at < words.length; at++) {
            words[at] = 0;
        }
    }

    void put(int field, long value) {
        words[field] = value;
    }

    void put(int field, double value) {
        words[field] = Double.doubleToRawLongBits(value);
    }

    void put(int field, float value) {
        words[field] = Float.floatToRawIntBits(value);
    }

    /** Sets a field to a value that is neither null nor a number. */
    void put(int field, Object value) {
        objects[field] = value;
    }

    @Override
    public void setNullAt(int field) {
        words[objects.length + (field >> 6)] |= 1L << field;
    }

    @Override
    public boolean isNullAt(int field) {
        return (words[objects.length + (field >> 6)] & 1L << field) != 0;
    }

    @Override
    public void update(int field, Object value) {
        if (value == null) {
            setNullAt(field);
            return;
        }
        words[objects.length + (field >> 6)] &= ~(1L << field);
        if (value instanceof Long || value instanceof Integer) {
            put(field, ((Number) value).longValue());
        } else if (value instanceof Double real) {
            put(field, real.doubleValue());
        } else if (value instanceof Float real) {
            put(field, real.floatValue());
        } else if (value instanceof Boolean truth) {
            put(field, truth ? 1L : 0L);
        } else {
            put(field, value);
        }
    }

    @Override
    public int numFields() {
        return objects.length;
    }

    @Override
    public InternalRow copy() {
        Object[] copies = new Object[objects.length];
        for (int at = 0; at < copies.length; at++) {
            copies[at] = isNullAt(at) ? null : InternalRow.copyValue(objects[at]);
        }
        return new DecodedRow(words.clone(), copies);
    }

    @Override
    public boolean getBoolean(int field) {
        return words[field] != 0;
    }

    @Override
    public byte getByte(int field) {
        return (byte) words[field];
    }

    @Override
    public short getShort(int field) {
        return (short) words[field];
    }

    @Override
    public int getInt(int field) {
        return (int) words[field];
    }

    @Override
    public long getLong(int field) {
        return words[field];
    }

    @Override
    public float getFloat(int field) {
        return Float.intBitsToFloat((int) words[field]);
    }

    @Override
    public double getDouble(int field) {
        return Double.longBitsToDouble(words[field]);
    }

    @Override
    public Object get(int field, DataType type) {
        return SpecializedGettersReader.read(this, field, type, true, true);
    }

    /** Returns a value that is not a number; for a null field null, as Spark expects. */
    @Override
    Object object(int field) {
        return isNullAt(field) ? null : objects[field];
    }

    @Override
    public Decimal getDecimal(int field, int precision, int scale) {
        return (Decimal) object(field);
    }

    @Override
    public UTF8String getUTF8String(int field) {
        return (UTF8String) object(field);
    }

    @Override
    public byte[] getBinary(int field) {
        return (byte[]) object(field);
    }

    @Override
    public InternalRow getStruct(int field, int fields) {
        return (InternalRow) object(field);
    }

    @Override
    public ArrayData getArray(int field) {
        return (ArrayData) object(field);
    }

    @Override
    public MapData getMap(int field) {
        return (MapData) object(field);
    }

    @Override
    public CalendarInterval getInterval(int field) {
        return (CalendarInterval) object(field);
    }
}
