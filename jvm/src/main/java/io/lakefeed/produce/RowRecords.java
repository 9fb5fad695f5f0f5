package io.lakefeed.produce;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;

/**
 * Makes a record of a row.
 *
 * @param key the column of the key; -1 for none
 * @param keyIsText whether the key is a string, not binary
 * @param headers the column of the headers; -1 for none
 * @param value the column of the value; -1 where {@code avro} makes it
 */
record RowRecords(int key, boolean keyIsText, int headers, int value, AvroValue avro) implements Serializable {
    ProducerRecord<byte[], byte[]> of(String topic, InternalRow row) {
        return new ProducerRecord<>(topic, null, null, keyOf(row), valueOf(row), headersOf(row));
    }

    private byte[] valueOf(InternalRow row) {
        if (value < 0) {
            return avro.of(row);
        }
        return row.isNullAt(value) ? null : row.getBinary(value);
    }

    private byte[] keyOf(InternalRow row) {
        if (key < 0 || row.isNullAt(key)) {
            return null;
        }
        return keyIsText ? row.getUTF8String(key).getBytes() : row.getBinary(key);
    }

    private List<Header> headersOf(InternalRow row) {
        if (headers < 0 || row.isNullAt(headers)) {
            return null;
        }
        ArrayData given = row.getArray(headers);
        List<Header> found = new ArrayList<>(given.numElements());
        for (int number = 0; number < given.numElements(); number++) {
            InternalRow header = given.getStruct(number, 2);
            found.add(new RecordHeader(
                    header.getUTF8String(0).toString(), header.isNullAt(1) ? null : header.getBinary(1)));
        }
        return found;
    }
}
