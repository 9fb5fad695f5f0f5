package io.lakefeed.kafka;

import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.kafka010.KafkaMicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** Spark's stream of topics with other readers; offsets, limits, triggers and metrics are Spark's. */
final class KafkaStream
        implements MicroBatchStream, SupportsTriggerAvailableNow, SupportsRealTimeMode, ReportsSourceMetrics {
    private final KafkaMicroBatchStream spark;
    private final StructType columns;
    private boolean fast;

    KafkaStream(KafkaMicroBatchStream spark, StructType columns, boolean fast) {
        this.spark = spark;
        this.columns = columns;
        this.fast = fast;
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new Readers(columns, fast, true);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return spark.planInputPartitions(start, end);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start) {
        return spark.planInputPartitions(start);
    }

    @Override
    public Offset mergeOffsets(PartitionOffset[] offsets) {
        return spark.mergeOffsets(offsets);
    }

    @Override
    public void prepareForRealTimeMode() {
        // Its readers wait for records without an end.
        fast = false;
        spark.prepareForRealTimeMode();
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        spark.prepareForTriggerAvailableNow();
    }

    @Override
    public Offset initialOffset() {
        return spark.initialOffset();
    }

    @Override
    public Offset latestOffset() {
        return spark.latestOffset();
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        return spark.latestOffset(start, limit);
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        return spark.getDefaultReadLimit();
    }

    @Override
    public Offset reportLatestOffset() {
        return spark.reportLatestOffset();
    }

    @Override
    public Offset deserializeOffset(String json) {
        return spark.deserializeOffset(json);
    }

    @Override
    public Map<String, String> metrics(Optional<Offset> latestConsumed) {
        return spark.metrics(latestConsumed);
    }

    @Override
    public void commit(Offset end) {
        spark.commit(end);
    }

    @Override
    public void stop() {
        spark.stop();
    }

    /** Spark shows this in progress reports and in its UI. */
    @Override
    public String toString() {
        return spark.toString();
    }
}
