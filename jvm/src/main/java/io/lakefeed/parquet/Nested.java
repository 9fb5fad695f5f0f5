package io.lakefeed.parquet;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;

/** A column of structs, arrays or maps; it passes the values inside to the columns of its parts. */
abstract class Nested implements Column {
    final Column[] parts;
    private final String name;
    private final boolean optional;
    /** The definition level of a struct that is present, or of an array or map that is not empty. */
    private final int definition;

    private final int ofNull;

    private Nested(Part part, boolean isRepeated, Column... parts) {
        this.name = part.name();
        this.optional = part.optional();
        this.definition = part.definition() + (isRepeated ? 1 : 0);
        this.ofNull = part.definition() - 1;
        this.parts = parts;
    }

    /** The levels of a nested column. */
    record Part(String name, boolean optional, int definition, int repetition) {}

    @Override
    public final void write(SpecializedGetters from, int at, int repetition) {
        if (!from.isNullAt(at)) {
            writeValue(from, at, repetition);
        } else if (optional) {
            absent(repetition, ofNull);
        } else {
            throw new IllegalArgumentException("the column " + name + " is required, but a row has null");
        }
    }

    abstract void writeValue(SpecializedGetters from, int at, int repetition);

    @Override
    public final void absent(int repetition, int level) {
        for (Column part : parts) {
            part.absent(repetition, level);
        }
    }

    final void empty(int repetition) {
        absent(repetition, definition - 1);
    }

    @Override
    public final void endRow() throws IOException {
        for (Column part : parts) {
            part.endRow();
        }
    }

    static Column struct(Part part, Column[] fields) {
        return new Nested(part, false, fields) {
            @Override
            void writeValue(SpecializedGetters from, int at, int repetition) {
                InternalRow struct = from.getStruct(at, parts.length);
                for (int field = 0; field < parts.length; field++) {
                    parts[field].write(struct, field, repetition);
                }
            }
        };
    }

    static Column array(Part part, Column element) {
        int inside = part.repetition() + 1;
        return new Nested(part, true, element) {
            @Override
            void writeValue(SpecializedGetters from, int at, int repetition) {
                ArrayData array = from.getArray(at);
                int count = array.numElements();
                if (count == 0) {
                    empty(repetition);
                }
                for (int next = 0; next < count; next++) {
                    element.write(array, next, next == 0 ? repetition : inside);
                }
            }
        };
    }

    static Column map(Part part, Column key, Column value) {
        int inside = part.repetition() + 1;
        return new Nested(part, true, key, value) {
            @Override
            void writeValue(SpecializedGetters from, int at, int repetition) {
                MapData map = from.getMap(at);
                ArrayData keys = map.keyArray();
                ArrayData values = map.valueArray();
                int count = keys.numElements();
                if (count == 0) {
                    empty(repetition);
                }
                for (int next = 0; next < count; next++) {
                    int level = next == 0 ? repetition : inside;
                    key.write(keys, next, level);
                    value.write(values, next, level);
                }
            }
        };
    }
}
