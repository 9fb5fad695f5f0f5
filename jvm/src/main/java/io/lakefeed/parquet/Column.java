package io.lakefeed.parquet;

import java.io.IOException;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;

/**
 * A column of rows, or a part of a nested one.
 *
 * <p>The levels are Parquet's: a repetition level says which list a value continues, 0 for a new row; a definition level
 * says how many of the optional and repeated parts above a value are there.
 */
interface Column {
    /** Adds the value at a position of a row, a struct or an array; it may be null. */
    void write(SpecializedGetters from, int at, int repetition);

    /** Adds that there is no value, because a part above it is null or empty. */
    void absent(int repetition, int definition);

    /** Ends a row, and with it a page that is full. */
    void endRow() throws IOException;
}
