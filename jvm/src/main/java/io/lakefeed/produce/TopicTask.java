package io.lakefeed.produce;

import java.io.Serializable;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.TaskContext;
import org.apache.spark.kafka010.KafkaConfigUpdater;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.jdk.javaapi.CollectionConverters;

/** Sends the rows of one task into a topic, by a producer of its own. */
final class TopicTask implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final String PREFIX = "kafka.";
    private static final long MOST_BYTES = 4 << 20;
    private static final long PAUSE_NANOS = 500_000;
    /** Longer than the client collects by default: then the brokers are slow, or it was set to collect for longer. */
    private static final long LONGEST_WAIT_NANOS = 100_000_000;

    private final String topic;
    private final HashMap<String, Object> settings = new HashMap<>();
    private final RowRecords records;

    TopicTask(String topic, Map<String, String> options, RowRecords records) {
        this.topic = topic;
        this.records = records;
        options.forEach((name, value) -> {
            if (name.startsWith(PREFIX)) {
                settings.put(name.substring(PREFIX.length()), value);
            }
        });
    }

    /**
     * Follows the records on their way, by one callback for all of them: their bytes, and the first error.
     *
     * <p>The task waits while more than {@value #MOST_BYTES} bytes are on their way. Without that the client's buffer
     * is full whenever the brokers are slower than the task: each further record then wakes the client's thread, and
     * the garbage collector copies what waits.
     */
    private static final class OnTheirWay implements Callback {
        private final AtomicLong acknowledged = new AtomicLong();
        private volatile Exception error;
        private long sent;

        @Override
        public void onCompletion(RecordMetadata record, Exception failure) {
            if (failure == null) {
                long bytes = Math.max(0, record.serializedKeySize()) + Math.max(0, record.serializedValueSize());
                // Only the client's one thread writes it.
                acknowledged.lazySet(acknowledged.getPlain() + bytes);
            } else if (error == null) {
                error = failure;
            }
        }

        /** Takes one more record, and waits for earlier ones if there are too many. */
        void add(ProducerRecord<byte[], byte[]> record, KafkaProducer<?, ?> producer, TaskContext task) {
            sent += sizeOf(record.key()) + sizeOf(record.value());
            if (sent - acknowledged.get() > MOST_BYTES) {
                long until = System.nanoTime() + LONGEST_WAIT_NANOS;
                do {
                    LockSupport.parkNanos(PAUSE_NANOS);
                    task.killTaskIfInterrupted();
                    check();
                    if (System.nanoTime() > until) {
                        producer.flush();
                        check();
                        return;
                    }
                } while (sent - acknowledged.get() > MOST_BYTES / 2);
            }
        }

        private static int sizeOf(byte[] bytes) {
            return bytes == null ? 0 : bytes.length;
        }

        void check() {
            Exception failure = error;
            if (failure instanceof RuntimeException unchecked) {
                throw unchecked;
            }
            if (failure != null) {
                throw new KafkaException(failure);
            }
        }
    }

    /** The rows of column batches, one after the other. */
    private static final class BatchRows implements Iterator<InternalRow> {
        private final Iterator<ColumnarBatch> batches;
        private Iterator<InternalRow> rows = Collections.emptyIterator();

        private BatchRows(Iterator<ColumnarBatch> batches) {
            this.batches = batches;
        }

        @Override
        public boolean hasNext() {
            while (!rows.hasNext() && batches.hasNext()) {
                rows = batches.next().rowIterator();
            }
            return rows.hasNext();
        }

        @Override
        public InternalRow next() {
            return rows.next();
        }
    }

    void sendBatches(Iterator<ColumnarBatch> batches) {
        sendRows(new BatchRows(batches));
    }

    /** Returns when the brokers have acknowledged all records. */
    void sendRows(Iterator<InternalRow> rows) {
        if (!rows.hasNext()) {
            return;
        }
        TaskContext task = TaskContext.get();
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(client(), new ByteArraySerializer(), new ByteArraySerializer());
        OnTheirWay onTheirWay = new OnTheirWay();
        try {
            while (rows.hasNext()) {
                task.killTaskIfInterrupted();
                onTheirWay.check();
                ProducerRecord<byte[], byte[]> record = records.of(topic, rows.next());
                producer.send(record, onTheirWay);
                onTheirWay.add(record, producer, task);
            }
            producer.flush();
            onTheirWay.check();
        } catch (Throwable failure) { // Spark's Scala throws checked exceptions too.
            boolean isOfRow = onTheirWay.error == null && !(failure instanceof KafkaException) && !task.isInterrupted();
            abandon(producer, isOfRow, failure);
            throw failure;
        }
        producer.close();
    }

    /** Ends the producer of a task that has failed; the records before a row that does not fit are sent. */
    private static void abandon(KafkaProducer<byte[], byte[]> producer, boolean isOfRow, Throwable failure) {
        try {
            if (isOfRow) {
                producer.flush();
            }
        } catch (RuntimeException other) {
            failure.addSuppressed(other);
        }
        try {
            producer.close(Duration.ZERO);
        } catch (RuntimeException other) {
            failure.addSuppressed(other);
        }
    }

    /** The login is Spark's where it has a delegation token for these brokers. */
    private Map<String, Object> client() {
        return new KafkaConfigUpdater(
                        "executor",
                        scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(settings)))
                .setAuthenticationConfigIfNeeded()
                .build();
    }
}
