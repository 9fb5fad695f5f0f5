package io.lakefeed.bench;

import io.lakefeed.decode.DecodeCatalog;
import io.lakefeed.decode.DecodeFunction;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Reads a topic with Kafka's consumer in a loop and, if requested, decodes each record. Without Spark, this shows how
 * fast a job on this machine could be at best.
 */
public final class PlainReader {
    private static final Duration POLL = Duration.ofMillis(200);
    /** The index of the error in the decoder's result (value, schema id, error). */
    private static final int ERROR = 2;

    private PlainReader() {}

    /**
     * Reads the records that the topic has now.
     *
     * @param settings the settings of the consumer
     * @param threads the number of threads; each has its own consumer and a share of the partitions
     * @param decoder the options of {@link DecodeCatalog}; if empty, records are not decoded
     * @return the number of records, and the bytes of their values
     * @throws IllegalStateException if a record cannot be decoded
     */
    public static long[] read(Map<String, String> settings, String topic, int threads, Map<String, String> decoder)
            throws InterruptedException, ExecutionException, NoSuchFunctionException {
        List<List<TopicPartition>> shares = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            shares.add(new ArrayList<>());
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.partitionsFor(topic)
                    .forEach(each -> shares.get(each.partition() % threads)
                            .add(new TopicPartition(topic, each.partition())));
        }
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<Future<long[]>> reads = new ArrayList<>();
            for (List<TopicPartition> share : shares) {
                DecodeFunction decode = decoder.isEmpty() ? null : function(decoder);
                reads.add(pool.submit(() -> readShare(settings, share, decode)));
            }
            long[] sum = new long[2];
            for (Future<long[]> read : reads) {
                sum[0] += read.get()[0];
                sum[1] += read.get()[1];
            }
            return sum;
        } finally {
            pool.shutdownNow();
        }
    }

    private static long[] readShare(Map<String, String> settings, List<TopicPartition> share, DecodeFunction decode) {
        long records = 0;
        long bytes = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.assign(share);
            consumer.seekToBeginning(share);
            Map<TopicPartition, Long> left = new HashMap<>(consumer.endOffsets(share));
            left.values().removeIf(end -> end == 0);
            while (!left.isEmpty()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    records++;
                    bytes += record.value().length;
                    if (decode != null) {
                        InternalRow row = decode.invoke(record.value());
                        if (!row.isNullAt(ERROR)) {
                            throw new IllegalStateException(row.getUTF8String(ERROR).toString());
                        }
                    }
                }
                left.entrySet().removeIf(end -> consumer.position(end.getKey()) >= end.getValue());
            }
        }
        return new long[] {records, bytes};
    }

    /**
     * Returns a new decoder; each thread needs its own decoder, because a shared decoder looks up its reader for each
     * record.
     */
    private static DecodeFunction function(Map<String, String> options) throws NoSuchFunctionException {
        DecodeCatalog catalog = new DecodeCatalog();
        catalog.initialize("bench", new CaseInsensitiveStringMap(options));
        StructType argument = new StructType().add("value", DataTypes.BinaryType);
        return (DecodeFunction) catalog.loadFunction(Identifier.of(new String[0], "decode")).bind(argument);
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.putAll(settings);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
}
