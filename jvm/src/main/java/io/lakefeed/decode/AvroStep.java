package io.lakefeed.decode;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;

/**
 * One step of a plan ({@link AvroPlan}): reads a value of the writer's schema as a value of the reader's schema.
 *
 * <p>Steps store nothing of a record, so a plan can read any number of records.
 */
abstract class AvroStep {
    /** The code ({@link #common}) of a field with none of the types below. */
    static final byte OTHER = 0;

    static final byte INT = 1;
    static final byte LONG = 2;
    static final byte DOUBLE = 3;
    static final byte STRING = 4;

    /** The bytes of a reference to an item, in an array of objects. */
    static final int REFERENCE = 4;

    static final ArrayData EMPTY = new GenericArrayData(new Object[0]);

    private static final Object[] NONE = {};

    /** Reads a value and returns it in Spark's internal form. */
    abstract Object read(BoundedDecoder in);

    void read(BoundedDecoder in, DecodedRow row, int field) {
        Object value = read(in);
        if (value == null) {
            row.setNullAt(field);
        } else {
            row.put(field, value);
        }
    }

    /** Returns the code of a common type; a record reads such fields itself, to save a call. */
    byte common() {
        return OTHER;
    }

    /** Reads an array whose items this step reads; {@code free} means that the items take no bytes. */
    ArrayData readItems(BoundedDecoder in, boolean free) {
        Object[] items = NONE;
        int size = 0;
        for (int count = in.readItemCount(free); count != 0; count = in.readItemCount(free)) {
            in.charge((long) count * REFERENCE);
            items = roomFor(size + count, items);
            try {
                for (int until = size + count; size < until; size++) {
                    items[size] = read(in);
                }
            } catch (RuntimeException bad) {
                throw BadRecord.of(bad).item(size);
            }
        }
        // All empty arrays share one object: otherwise an array of empty arrays would need more memory than its bytes.
        return size == 0 ? EMPTY : new GenericArrayData(size == items.length ? items : Arrays.copyOf(items, size));
    }

    /** Reads a value inside a recursive type and writes it as JSON, because no column but text can represent it. */
    abstract void write(BoundedDecoder in, JsonText json);

    /**
     * Returns an array with room for {@code required} items: {@code items}, or a copy that is larger by half or more,
     * so that reading many small blocks causes few copies.
     */
    static Object[] roomFor(int required, Object[] items) {
        return required <= items.length ? items : Arrays.copyOf(items, Math.max(required, items.length + (items.length >> 1)));
    }

    /** Returns an array with room for {@code required} items of {@code size} bytes. */
    static byte[] roomFor(int required, byte[] items, int size) {
        int room = items.length / size;
        return required <= room ? items : Arrays.copyOf(items, Math.multiplyExact(size, Math.max(required, room + (room >> 1))));
    }
}
