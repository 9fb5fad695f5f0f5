package io.lakefeed.decode;

import org.apache.spark.sql.catalyst.InternalRow;

/** A row with the getters that only some lines of Spark have. */
abstract class SparkRow extends InternalRow {
    private static final long serialVersionUID = 1L;

    abstract Object object(int field);
}
