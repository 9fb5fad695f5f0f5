package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;

/**
 * One step of a plan ({@link AvroPlan}): reads a value of the writer's schema as the reader's schema requires it.
 *
 * <p>Steps have no state, so one plan can read any number of records.
 */
abstract class AvroStep {
    /** A kind of {@link #common}: none of the others. */
    static final byte OTHER = 0;

    static final byte INT = 1;
    static final byte LONG = 2;
    static final byte DOUBLE = 3;
    static final byte STRING = 4;

    /** Bytes of an item in an array of objects. */
    static final int REFERENCE = 4;

    static final ArrayData EMPTY = new GenericArrayData(new Object[0]);

    private static final Object[] NONE = {};

    /** Returns the value in Spark's internal form, null for null. */
    abstract Object read(BoundedDecoder in);

    void read(BoundedDecoder in, DecodedRow row, int field) {
        Object value = read(in);
        if (value == null) {
            row.setNullAt(field);
        } else {
            row.put(field, value);
        }
    }

    /** Returns the kind of a common field: a record reads these itself, which saves a call for each. */
    byte common() {
        return OTHER;
    }

    /** Reads an array of these items; {@code free} if they take no bytes. */
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
        // All empty arrays are one object: an array of empty arrays would take much more memory than its bytes.
        return size == 0 ? EMPTY : new GenericArrayData(size == items.length ? items : Arrays.copyOf(items, size));
    }

    /** Reads the value and writes it as JSON, inside recursive types, which no column can hold otherwise. */
    abstract void write(BoundedDecoder in, JsonGenerator json) throws IOException;

    /**
     * Returns an array with room for {@code required} items: it grows by half at least, so that many small blocks do not
     * copy it each time.
     */
    static Object[] roomFor(int required, Object[] items) {
        return required <= items.length ? items : Arrays.copyOf(items, Math.max(required, items.length + (items.length >> 1)));
    }

    /** Returns the same for items of {@code size} bytes. */
    static byte[] roomFor(int required, byte[] items, int size) {
        int room = items.length / size;
        return required <= room ? items : Arrays.copyOf(items, Math.multiplyExact(size, Math.max(required, room + (room >> 1))));
    }
}
