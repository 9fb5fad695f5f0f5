package io.lakefeed.kinesis;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Reads a stream of Kinesis with {@code spark.readStream.format("io.lakefeed.kinesis.KinesisSource")}, or with {@code
 * spark.read} and the option {@code ranges}.
 *
 * <p>The columns are those of Spark's Kafka source, and {@code sequence_number}. The partition key is {@code key}, the
 * data {@code value}, the stream {@code topic} and the shard's number {@code partition}; {@code offset} counts the
 * records of a shard that the feed has read.
 *
 * <p>The options are those of {@link StreamConnection#of}; {@code max-records}, the most records of a batch; and {@code
 * starting}, a position in the form of {@link StreamOffset}, or {@code start}, which is {@code earliest} or {@code
 * latest}.
 */
public final class KinesisSource implements TableProvider {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final StructType COLUMNS = StructType.fromDDL("key BINARY, value BINARY, topic STRING, partition INT,"
            + " offset BIGINT, timestamp TIMESTAMP, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, sequence_number STRING");

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return COLUMNS;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new StreamTable(StreamConnection.of(properties));
    }

    private record StreamTable(StreamConnection connection) implements Table, SupportsRead {
        @Override
        public String name() {
            return "kinesis " + connection.stream();
        }

        @Override
        @SuppressWarnings("deprecation") // Spark calls the deprecated schema() if a table does not override columns().
        public StructType schema() {
            return COLUMNS;
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.MICRO_BATCH_READ, TableCapability.BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return () -> new StreamScan(connection, options);
        }
    }

    private record StreamScan(StreamConnection connection, CaseInsensitiveStringMap options) implements Scan, Batch {
        @Override
        public StructType readSchema() {
            return COLUMNS;
        }

        @Override
        public String description() {
            return connection.toString();
        }

        @Override
        public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
            KinesisStream.Settings settings = new KinesisStream.Settings(
                    options.getLong("max-records", Long.MAX_VALUE),
                    options.get("starting"),
                    "latest".equals(options.get("start")));
            return new KinesisStream(connection, settings, new Beginning(checkpointLocation));
        }

        @Override
        public Batch toBatch() {
            return this;
        }

        /**
         * Returns the ranges of the option {@code ranges}: {@code [{"shard": 0, "at": 10, "mark": "49…", "from": 12,
         * "to": 14}]}.
         */
        @Override
        public InputPartition[] planInputPartitions() {
            List<InputPartition> ranges = new ArrayList<>();
            try {
                for (JsonNode each : JSON.readTree(options.getOrDefault("ranges", "[]"))) {
                    ranges.add(new ShardRange(
                            connection,
                            each.path("shard").asInt(),
                            each.path("at").asLong(),
                            each.path("mark").asText(),
                            each.path("from").asLong(),
                            each.path("to").asLong(),
                            null));
                }
            } catch (JsonProcessingException unreadable) {
                throw new IllegalArgumentException(
                        "the option ranges is not JSON: " + options.get("ranges"), unreadable);
            }
            return ranges.toArray(InputPartition[]::new);
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new ShardRange.Factory();
        }
    }
}
