package io.lakefeed.kafka;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaBatchPartitionReader;
import org.apache.spark.sql.kafka010.KafkaBatchReaderFactory;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;
import org.apache.spark.sql.types.StructType;

/**
 * Creates the readers of a topic's ranges: a {@link RangeReader}, or Spark's reader with the rows of {@link
 * RecordRows}.
 *
 * @param fast whether to use {@link RangeReader} where it reads the same records as Spark's reader
 * @param keeps whether consumers are kept for the next batch
 */
record Readers(StructType columns, boolean fast, boolean keeps) implements PartitionReaderFactory {
    private static final String TOKENS = "spark.kafka.clusters.";

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        // Only Spark's reader supports delegation tokens.
        boolean usesTokens = SparkEnv.get().conf().getAllWithPrefix(TOKENS).length > 0;
        if (fast && partition instanceof KafkaBatchInputPartition slice && RangeReader.takes(slice) && !usesTokens) {
            return new RangeReader(slice, new RecordRows(columns), keeps);
        }
        PartitionReader<InternalRow> reader = KafkaBatchReaderFactory.createReader(partition);
        RecordRows.replaceIn((KafkaBatchPartitionReader) reader, columns);
        return reader;
    }

    /**
     * Reads the records of one range of offsets.
     *
     * <p>It is faster than Spark's reader, which measures the time for each record, and asks the broker for the
     * partition's first and last offset after each poll.
     */
    static final class RangeReader implements PartitionReader<InternalRow> {
        private final PartitionConsumer consumer;
        private final long until;
        private final long timeoutMs;
        private final RecordRows rows;
        private final boolean keeps;
        private ConsumerRecord<byte[], byte[]> record;
        private boolean ended;

        RangeReader(KafkaBatchInputPartition slice, RecordRows rows, boolean keeps) {
            KafkaOffsetRange range = slice.offsetRange();
            this.rows = rows;
            this.keeps = keeps;
            until = range.untilOffset();
            timeoutMs = slice.pollTimeoutMs();
            // No further name is needed: the settings of queries differ, because Spark gives each its own group.
            consumer = PartitionConsumer.take("", slice.executorKafkaParams(), range.topicPartition());
            consumer.begin(range.fromOffset());
        }

        /** Returns whether this reader reads the same records of the slice as Spark's reader would. */
        static boolean takes(KafkaBatchInputPartition slice) {
            KafkaOffsetRange range = slice.offsetRange();
            return slice.failOnDataLoss() && range.fromOffset() >= 0 && range.untilOffset() >= 0;
        }

        @Override
        public boolean next() {
            record = consumer.next(until, timeoutMs);
            ended = record == null;
            return !ended;
        }

        @Override
        public InternalRow get() {
            return rows.apply(record);
        }

        /** Keeps the consumer for later; closes it after a failure, of which it may be the cause. */
        @Override
        public void close() {
            if (ended && keeps) {
                consumer.keep();
            } else {
                consumer.close();
            }
        }
    }
}
