package io.lakefeed.kafka;

import java.util.Map;
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
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaMicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Reads Kafka topics with {@code spark.readStream.format("io.lakefeed.kafka.KafkaRecords")}, and with {@code
 * spark.read}.
 *
 * <p>It is Spark's Kafka source, with its options and offsets; {@link Readers} read the records, and {@link RecordRows}
 * creates the rows. Spark's own step throws if a timestamp overflows a long of microseconds, and its error has no
 * position.
 *
 * <p>The columns are those of Spark's source, and {@code bad_timestamp}: see {@link RecordRows}.
 */
public final class KafkaRecords implements TableProvider {
    private static final String HEADERS = "includeHeaders";
    /** Option: true for lakefeed's readers, not Spark's. */
    private static final String FAST = "fastPath";

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return RecordRows.columns(options.getBoolean(HEADERS, false));
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
        return new Topics((SupportsRead) new KafkaSourceProvider().getTable(options), inferSchema(options), options.getBoolean(FAST, false));
    }

    private record Topics(SupportsRead spark, StructType rows, boolean fast) implements Table, SupportsRead {
        @Override
        public String name() {
            return spark.name();
        }

        @Override
        @SuppressWarnings("deprecation") // Spark asks for it where a table names no columns.
        public StructType schema() {
            return rows;
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.MICRO_BATCH_READ, TableCapability.BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return () -> new TopicScan(spark.newScanBuilder(options).build(), rows, fast);
        }
    }

    private record TopicScan(Scan spark, StructType columns, boolean fast) implements Scan {
        @Override
        public StructType readSchema() {
            return columns;
        }

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
            return new TopicBatch(spark.toBatch(), columns, fast);
        }

        @Override
        public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
            return new KafkaStream((KafkaMicroBatchStream) spark.toMicroBatchStream(checkpointLocation), columns, fast);
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
}
