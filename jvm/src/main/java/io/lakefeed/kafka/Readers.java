package io.lakefeed.kafka;

import org.apache.spark.SparkEnv;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaBatchPartitionReader;
import org.apache.spark.sql.kafka010.KafkaBatchReaderFactory;
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
        if (fast && partition instanceof KafkaBatchInputPartition slice && RangeReader.takes(slice) && !usesTokens()) {
            return new RangeReader(slice, new RecordRows(columns), keeps);
        }
        PartitionReader<InternalRow> reader = KafkaBatchReaderFactory.createReader(partition);
        RecordRows.replaceIn((KafkaBatchPartitionReader) reader, columns);
        return reader;
    }

    /** Only Spark's reader takes part in Spark's delegation tokens. */
    private static boolean usesTokens() {
        return SparkEnv.get().conf().getAllWithPrefix(TOKENS).length > 0;
    }
}
