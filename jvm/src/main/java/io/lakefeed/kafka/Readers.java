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
 * Creates the reader of each slice of a topic: {@link RangeReader}, or Spark's with other rows.
 *
 * @param fast whether to use {@link RangeReader} where it reads what Spark's does
 * @param keeps whether consumers are kept for the next batch
 */
record Readers(StructType columns, boolean fast, boolean keeps) implements PartitionReaderFactory {
    private static final String TOKENS = "spark.kafka.clusters.";

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        // Only Spark's reader takes part in Spark's delegation tokens.
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
     * <p>Spark's reader takes the time of each record, and asks the broker for the first and the last offset after each poll.
     */
    static final class RangeReader implements PartitionReader<InternalRow> {
        private final PartitionConsumer consumer;
        private final long until;
        private final long patience;
        private final RecordRows rows;
        private final boolean keeps;
        private ConsumerRecord<byte[], byte[]> record;
        private boolean whole;

        RangeReader(KafkaBatchInputPartition slice, RecordRows rows, boolean keeps) {
            KafkaOffsetRange range = slice.offsetRange();
            this.rows = rows;
            this.keeps = keeps;
            until = range.untilOffset();
            patience = slice.pollTimeoutMs();
            consumer = PartitionConsumer.take(
                    // Spark gives each query a group of its own.
                    "", slice.executorKafkaParams(), range.topicPartition());
            consumer.begin(range.fromOffset());
        }

        /** Returns whether this reader reads the slice as Spark's would. */
        static boolean takes(KafkaBatchInputPartition slice) {
            KafkaOffsetRange range = slice.offsetRange();
            return slice.failOnDataLoss() && range.fromOffset() >= 0 && range.untilOffset() >= 0;
        }

        @Override
        public boolean next() {
            record = consumer.next(until, patience);
            whole = record == null;
            return !whole;
        }

        @Override
        public InternalRow get() {
            return rows.apply(record);
        }

        /** A consumer whose range was not read to its end is not kept: its task has failed, and it may be the reason. */
        @Override
        public void close() {
            if (whole && keeps) {
                consumer.keep();
            } else {
                consumer.close();
            }
        }
    }
}
