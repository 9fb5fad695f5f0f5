package io.lakefeed.parquet;

import java.io.IOException;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;

/**
 * A column of the rows, or a part of a nested column.
 *
 * <p>The levels are Parquet's. A repetition level says which list a value continues; the first value of a row has level
 * 0. A definition level is the number of optional and repeated parts above a value that are present.
 */
interface Column {
    /** Adds the value at a position of a row, a struct or an array; the value can be null. */
    void write(SpecializedGetters from, int at, int repetition);

    /** Adds the levels of a missing value, because the value or a part above it is null or empty. */
    void absent(int repetition, int definition);

    /** Ends a row, and the page if it is full. */
    void endRow() throws IOException;
}
