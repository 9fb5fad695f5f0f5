package io.lakefeed.parquet;

import java.io.IOException;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;

/**
 * A column of the rows, or a part of a nested column.
 *
 * <p>The levels are Parquet's. A value's repetition level says at which level of nested lists it begins a new item; 0
 * begins a new row. A definition level is the number of optional and repeated fields on the path to a value that are
 * present.
 */
interface Column {
    /** Adds the value at an ordinal of a row, a struct or an array; the value can be null. */
    void write(SpecializedGetters from, int at, int repetition);

    /** Adds the levels of a missing value: it is null, or a field on the path to it is null or empty. */
    void absent(int repetition, int definition);

    /** Ends a row, and the page if the page is full. */
    void endRow() throws IOException;
}
