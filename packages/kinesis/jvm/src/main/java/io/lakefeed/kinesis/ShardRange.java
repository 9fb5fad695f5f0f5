package io.lakefeed.kinesis;

import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.unsafe.types.UTF8String;
import software.amazon.awssdk.services.kinesis.model.Record;

/**
 * The records of one shard that a task reads.
 *
 * @param connection the connection to the stream
 * @param shard the shard's number
 * @param at the number of the first record after {@code mark}
 * @param mark the {@link Mark} at which reading begins, as text
 * @param from the number of the first record of the range
 * @param to the number of the first record after the range
 * @param last the sequence number of the range's last record; null if it is unknown
 */
record ShardRange(StreamConnection connection, int shard, long at, String mark, long from, long to, String last)
        implements InputPartition {

    static ShardRange of(StreamConnection connection, int shard, StreamOffset.At start, StreamOffset.At end) {
        return new ShardRange(
                connection, shard, start.at(), start.mark().toString(), start.at(), end.at(), end.mark().sequenceNumber());
    }

    @Override
    public String toString() {
        return connection + ", " + DataStream.shardId(shard) + " [" + from + ", " + to + ")";
    }

    static final class Factory implements PartitionReaderFactory {
        private static final long serialVersionUID = 1L;

        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            return new Reader((ShardRange) partition);
        }
    }

    /** Reads all records of a range, or fails. */
    private static final class Reader implements PartitionReader<InternalRow> {
        private final ShardRange range;
        private final ShardCursor cursor;
        private final UTF8String stream;
        private Iterator<Record> page = List.<Record>of().iterator();
        private long next;
        private Record record;

        Reader(ShardRange range) {
            this.range = range;
            this.next = range.at();
            this.stream = UTF8String.fromString(range.connection().stream());
            Mark mark = Mark.of(range.mark());
            this.cursor = new ShardCursor(
                    new DataStream(range.connection()), range.shard(), new Mark(mark.where(), mark.seen(), false));
        }

        @Override
        public boolean next() {
            do {
                if (next == range.to()) {
                    requireRightEnd();
                    return false;
                }
                while (!page.hasNext()) {
                    ShardCursor.Page found = cursor.next(range.to() - next);
                    if (found.records().isEmpty() && (found.finished() || found.atTip())) {
                        throw lost("there are only " + (next - range.at()) + " of " + (range.to() - range.at()));
                    }
                    page = found.records().iterator();
                }
                record = page.next();
                next++;
            } while (next <= range.from());
            return true;
        }

        /**
         * Checks that the last record is the planned one. Then no record is missing, because the number of records is
         * the planned one, too, and sequence numbers only rise.
         */
        private void requireRightEnd() {
            if (range.last() != null && record != null && !record.sequenceNumber().equals(range.last())) {
                throw lost("they end at sequence number " + record.sequenceNumber() + " and not at " + range.last());
            }
        }

        private StreamFailure lost(String described) {
            return StreamFailure.lost("of the records that were planned for a batch " + described + " (" + range + ")");
        }

        @Override
        public InternalRow get() {
            return new GenericInternalRow(new Object[] {
                record.partitionKey().getBytes(StandardCharsets.UTF_8),
                record.data().asByteArray(),
                stream,
                range.shard(),
                next - 1,
                record.approximateArrivalTimestamp().toEpochMilli() * 1000,
                new GenericArrayData(new Object[] {header("sequence_number", record.sequenceNumber())}),
                UTF8String.fromString(record.sequenceNumber()),
            });
        }

        /** Returns a header of the record; dead letters keep headers. */
        private static InternalRow header(String name, String value) {
            return new GenericInternalRow(
                    new Object[] {UTF8String.fromString(name), value.getBytes(StandardCharsets.UTF_8)});
        }

        @Override
        public void close() {
            // Nothing to close: all readers share the client.
        }
    }
}
