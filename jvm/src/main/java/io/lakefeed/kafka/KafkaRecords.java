package io.lakefeed.kafka;

import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.kafka010.KafkaMicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Reads Kafka topics with {@code spark.readStream.format("io.lakefeed.kafka.KafkaRecords")}, and with {@code
 * spark.read}.
 *
 * <p>It has the options and offsets of Spark's Kafka source, but {@link Readers} creates the readers, and {@link
 * RecordRows} the rows. If a timestamp overflows a long of microseconds, Spark's own code throws an error without the
 * record's offset.
 *
 * <p>The columns are those of Spark's source, and {@code bad_timestamp}: see {@link RecordRows}.
 */
public final class KafkaRecords implements TableProvider {
    private static final String HEADERS = "includeHeaders";
    /** The option that selects lakefeed's readers (true) or Spark's readers (false). */
    private static final String FAST = "fastPath";

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return RecordRows.columns(options.getBoolean(HEADERS, false));
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
        SupportsRead spark = (SupportsRead) new KafkaSourceProvider().getTable(options);
        boolean fast = options.getBoolean(FAST, false);
        return new SourceTable(
                spark.name(),
                inferSchema(options),
                Set.of(TableCapability.MICRO_BATCH_READ, TableCapability.BATCH_READ),
                given -> new TopicScan(spark.newScanBuilder(given).build(), inferSchema(options), fast));
    }

    private record TopicScan(Scan spark, StructType readSchema, boolean fast) implements Scan {
        @Override
        public String description() {
            return spark.description();
        }

        @Override
        public CustomMetric[] supportedCustomMetrics() {
            return spark.supportedCustomMetrics();
        }

        @Override
        public Batch toBatch() {
            return new TopicBatch(spark.toBatch(), readSchema, fast);
        }

        @Override
        public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
            return new KafkaStream((KafkaMicroBatchStream) spark.toMicroBatchStream(checkpointLocation), readSchema, fast);
        }
    }

    private record TopicBatch(Batch spark, StructType columns, boolean fast) implements Batch {
        @Override
        public InputPartition[] planInputPartitions() {
            return spark.planInputPartitions();
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new Readers(columns, fast, false);
        }
    }

    /** Spark's stream of topics, for which {@link Readers} creates the readers. */
    static final class KafkaStream
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
            // In real-time mode a reader has to wait for records forever, which only Spark's readers do.
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

        /** Returns the source's name in Spark's progress reports and UI. */
        @Override
        public String toString() {
            return spark.toString();
        }
    }
}
