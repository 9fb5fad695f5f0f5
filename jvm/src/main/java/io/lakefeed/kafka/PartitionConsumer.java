package io.lakefeed.kafka;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;

/**
 * Reads one partition of a topic with its own Kafka consumer, which fetches ahead.
 *
 * <p>The consumer, with the records that it has fetched, is kept for the next batch. If a topic has more partitions
 * than there are kept consumers, a kept consumer moves to another partition. A new consumer for each partition would
 * make the work of a batch grow with the square of the partitions, because every new consumer asks the broker for all
 * partitions. Not thread safe: {@link #take} reserves a consumer for one task.
 */
final class PartitionConsumer implements AutoCloseable {
    /** The most consumers to keep: Spark's default ({@code spark.kafka.consumer.cache.capacity}). */
    private static final int MOST_KEPT = 64;

    /** The longest wait of one poll: it is short, so that a killed task ends soon. */
    private static final long POLL_MILLISECONDS = 1_000;

    private static final long LONGEST_KEPT_NANOS = 300_000_000_000L;

    /**
     * Kafka's default of {@code fetch.max.wait.ms}: the broker may delay the answer to a consumer's last fetch by this
     * time, and until then the consumer does not fetch from another partition.
     */
    private static final long LAST_FETCH_NANOS = 500_000_000L;

    private static final LinkedHashMap<Key, PartitionConsumer> KEPT = new LinkedHashMap<>();
    private static int taken;

    private final Key key;
    private final TopicPartition partition;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private Iterator<ConsumerRecord<byte[], byte[]>> fetched = Collections.emptyIterator();
    /** A record of {@code fetched} that follows the range that was read; or null. */
    private ConsumerRecord<byte[], byte[]> ahead;

    /** The offset at which the records in {@code ahead} and {@code fetched} begin; -1 before the first range. */
    private long next = -1;

    private long keptAt;

    private record Key(String of, Map<String, Object> settings, TopicPartition partition) {
        boolean readsSameTopic(Key other) {
            return of.equals(other.of)
                    && partition.topic().equals(other.partition.topic())
                    && settings.equals(other.settings);
        }
    }

    private PartitionConsumer(Key key, KafkaConsumer<byte[], byte[]> consumer) {
        this.key = key;
        this.partition = key.partition();
        this.consumer = consumer;
        consumer.assign(List.of(partition));
    }

    /**
     * Returns a consumer of the partition for the caller's task, which later keeps or closes the consumer.
     *
     * @param of the query or run of the task, which must not get records that a consumer has fetched for another one
     */
    static PartitionConsumer take(String of, Map<String, Object> settings, TopicPartition partition) {
        Key key = new Key(of, settings, partition);
        PartitionConsumer longest;
        synchronized (KEPT) {
            PartitionConsumer kept = KEPT.remove(key);
            if (kept != null) {
                taken++;
                return kept;
            }
            longest = KEPT.size() + taken >= MOST_KEPT ? removeLongest(key) : null;
        }
        PartitionConsumer created =
                new PartitionConsumer(key, longest == null ? new KafkaConsumer<>(settings) : longest.consumer);
        // Count the consumer only now: if its creation fails, no task returns it.
        synchronized (KEPT) {
            taken++;
        }
        return created;
    }

    /** Removes the topic's consumer that was kept longest; null if it cannot move to another partition yet. */
    private static PartitionConsumer removeLongest(Key key) {
        long latest = System.nanoTime() - LAST_FETCH_NANOS;
        for (PartitionConsumer each : KEPT.values()) {
            if (each.key.readsSameTopic(key)) {
                return each.keptAt - latest <= 0 ? KEPT.remove(each.key) : null;
            }
        }
        return null;
    }

    /** Keeps the consumer for another task, and closes consumers that no task has used for five minutes. */
    void keep() {
        keptAt = System.nanoTime();
        List<PartitionConsumer> old = new ArrayList<>();
        synchronized (KEPT) {
            taken--;
            PartitionConsumer other = KEPT.put(key, this);
            if (other != null) {
                old.add(other);
            }
            Iterator<PartitionConsumer> longest = KEPT.values().iterator();
            for (int size = KEPT.size(); size > 0; size--) {
                PartitionConsumer each = longest.next();
                if (size <= MOST_KEPT && keptAt - each.keptAt < LONGEST_KEPT_NANOS) {
                    break;
                }
                longest.remove();
                old.add(each);
            }
        }
        old.forEach(PartitionConsumer::end);
    }

    static void closeKept(String of) {
        List<PartitionConsumer> kept = new ArrayList<>();
        synchronized (KEPT) {
            KEPT.values().removeIf(each -> each.key.of().equals(of) && kept.add(each));
        }
        kept.forEach(PartitionConsumer::end);
    }

    @Override
    public void close() {
        synchronized (KEPT) {
            taken--;
        }
        end();
    }

    /** Closes the consumer at once, because it is in no group that it would have to leave. */
    private void end() {
        consumer.close(Duration.ZERO);
    }

    /** Begins a range; uses records that were fetched ahead, if the range begins at the end of the last range. */
    void begin(long offset) {
        if (offset != next) {
            fetched = Collections.emptyIterator();
            ahead = null;
            next = offset;
            consumer.seek(partition, offset);
        }
    }

    /**
     * Returns the next record before {@code until}; null if the range has no more records.
     *
     * @param timeoutMs how long to wait for a record
     * @throws IllegalStateException if the topic no longer has records of the range
     * @throws UncheckedIOException if no record comes in time
     */
    ConsumerRecord<byte[], byte[]> next(long until, long timeoutMs) {
        while (next < until) {
            ConsumerRecord<byte[], byte[]> record = ahead;
            ahead = null;
            if (record == null) {
                if (!fetched.hasNext()) {
                    fetch(until, timeoutMs);
                    continue;
                }
                record = fetched.next();
            }
            if (record.offset() >= until) {
                // The range has no more records: its last offsets are markers of transactions, or were compacted away.
                ahead = record;
                next = until;
                return null;
            }
            next = record.offset() + 1;
            return record;
        }
        return null;
    }

    private void fetch(long until, long timeoutMs) {
        long deadline = System.nanoTime() + timeoutMs * 1_000_000;
        try {
            while (true) {
                // The rest of a range can consist of markers of transactions, which the consumer skips.
                long position = consumer.position(partition);
                if (position > next) {
                    next = Math.min(position, until);
                    return;
                }
                fetched = consumer.poll(Duration.ofMillis(Math.min(timeoutMs, POLL_MILLISECONDS)))
                        .records(partition)
                        .iterator();
                if (fetched.hasNext()) {
                    return;
                }
                if (consumer.position(partition) == next && System.nanoTime() - deadline >= 0) {
                    throw late(timeoutMs);
                }
            }
        } catch (OffsetOutOfRangeException gone) {
            throw lost(gone);
        }
    }

    private RuntimeException late(long timeoutMs) {
        long earliest = consumer.beginningOffsets(List.of(partition)).get(partition);
        long latest = consumer.endOffsets(List.of(partition)).get(partition);
        if (next < earliest || next >= latest) {
            return lost(null);
        }
        return new UncheckedIOException(
                new IOException("topic " + partition.topic() + ", partition " + partition.partition()
                        + ": no record came from offset " + next + " on within " + timeoutMs + " ms"));
    }

    private IllegalStateException lost(OffsetOutOfRangeException gone) {
        return new IllegalStateException(
                "topic " + partition.topic() + ", partition " + partition.partition() + ": offset " + next
                        + " is not in the topic any more; some data may have been lost",
                gone);
    }
}
