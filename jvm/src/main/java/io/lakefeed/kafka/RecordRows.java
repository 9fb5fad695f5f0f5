package io.lakefeed.kafka;

import java.lang.reflect.Field;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeArrayWriter;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.kafka010.KafkaBatchPartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.runtime.AbstractFunction1;

/**
 * Creates a row for each record: the columns of Spark's Kafka source, and {@code bad_timestamp}.
 *
 * <p>A record without a timestamp (-1) has a null {@code timestamp}. If a timestamp overflows a long of microseconds,
 * {@code timestamp} is null and {@code bad_timestamp} has the timestamp in milliseconds; otherwise {@code
 * bad_timestamp} is null.
 *
 * <p>Each call overwrites the same row, as in Spark's source. Not thread safe.
 */
final class RecordRows extends AbstractFunction1<ConsumerRecord<byte[], byte[]>, UnsafeRow> {
    private static final StructType COLUMNS = StructType.fromDDL("key BINARY, value BINARY, topic STRING, partition INT,"
            + " offset BIGINT, timestamp TIMESTAMP, timestampType INT, bad_timestamp BIGINT");
    private static final StructType WITH_HEADERS =
            COLUMNS.add("headers", StructType.fromDDL("h ARRAY<STRUCT<key: STRING, value: BINARY>>").apply(0).dataType());
    private static final int HEADERS = COLUMNS.length();

    private static final long LATEST = Long.MAX_VALUE / 1000;
    private static final long EARLIEST = Long.MIN_VALUE / 1000;
    private static final String PLACE = "unsafeRowProjector";

    private final UnsafeRowWriter row;
    private final UnsafeArrayWriter headers;
    private final UnsafeRowWriter header;

    private String topic;
    private UTF8String topicText;

    RecordRows(StructType columns) {
        row = new UnsafeRowWriter(columns.length(), 256);
        headers = columns.length() > HEADERS ? new UnsafeArrayWriter(row, 8) : null;
        header = headers == null ? null : new UnsafeRowWriter(headers, 2);
    }

    static StructType columns(boolean withHeaders) {
        return withHeaders ? WITH_HEADERS : COLUMNS;
    }

    /** Makes Spark's partition reader create rows with this class, by setting the reader's private field. */
    static void replaceIn(KafkaBatchPartitionReader reader, StructType columns) {
        try {
            Field step = KafkaBatchPartitionReader.class.getDeclaredField(PLACE);
            step.setAccessible(true);
            step.set(reader, new RecordRows(columns));
        } catch (ReflectiveOperationException other) {
            reader.close();
            throw new IllegalStateException("this version of Spark's Kafka source has no field " + PLACE
                    + ", which lakefeed replaces: use the version of Spark that lakefeed is tested with", other);
        }
    }

    @Override
    public UnsafeRow apply(ConsumerRecord<byte[], byte[]> record) {
        row.reset();
        row.zeroOutNullBytes();
        write(row, 0, record.key());
        write(row, 1, record.value());
        row.write(2, text(record.topic()));
        row.write(3, record.partition());
        row.write(4, record.offset());
        long time = record.timestamp();
        boolean fits = fits(time);
        if (fits && time != RecordBatch.NO_TIMESTAMP) {
            row.write(5, time * 1000);
        } else {
            row.setNullAt(5);
        }
        row.write(6, record.timestampType().id);
        if (fits) {
            row.setNullAt(7);
        } else {
            row.write(7, time);
        }
        if (headers != null) {
            writeHeaders(record.headers().toArray());
        }
        return row.getRow();
    }

    /** Returns whether a time in milliseconds fits a long of microseconds. */
    static boolean fits(long time) {
        return time >= EARLIEST && time <= LATEST;
    }

    private void writeHeaders(Header[] all) {
        if (all.length == 0) {
            row.setNullAt(HEADERS);
            return;
        }
        int begin = row.cursor();
        headers.initialize(all.length);
        for (int at = 0; at < all.length; at++) {
            int start = headers.cursor();
            header.resetRowWriter();
            header.write(0, UTF8String.fromString(all[at].key()));
            write(header, 1, all[at].value());
            headers.setOffsetAndSizeFromPreviousCursor(at, start);
        }
        row.setOffsetAndSizeFromPreviousCursor(HEADERS, begin);
    }

    private static void write(UnsafeRowWriter into, int field, byte[] bytes) {
        if (bytes == null) {
            into.setNullAt(field);
        } else {
            into.write(field, bytes);
        }
    }

    /** Returns a topic's name as Spark's text; the records of a fetch share one String of the name. */
    private UTF8String text(String name) {
        if (name != topic) {
            topic = name;
            topicText = UTF8String.fromString(name);
        }
        return topicText;
    }
}
