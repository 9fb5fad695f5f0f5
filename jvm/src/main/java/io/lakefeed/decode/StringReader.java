package io.lakefeed.decode;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads values that are text in UTF-8, including empty text. */
final class StringReader extends RecordReader {
    StringReader() {
        super(null);
    }

    @Override
    boolean takesEmpty() {
        return true;
    }

    @Override
    InternalRow value(byte[] record, int from, int schemaId) {
        UTF8String text = UTF8String.fromBytes(record);
        if (!text.isValid()) {
            throw new BadRecord("not UTF-8");
        }
        return new GenericInternalRow(new Object[] {text});
    }
}
