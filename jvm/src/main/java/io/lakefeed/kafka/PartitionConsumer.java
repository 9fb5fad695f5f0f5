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
 * Reads one partition of a topic, with one consumer, which fetches ahead.
 *
 * <p>A consumer is kept for the next batch, with what it has fetched: a stream resumes where it ended. Where a topic has
 * more partitions than consumers are kept, one reads a partition after the other: a new consumer asks the broker for all
 * partitions of the topic, so that the work of a batch would grow with their square. Not thread safe; {@link #take} gives
 * each one to one task.
 */
final class PartitionConsumer implements AutoCloseable {
    /** As many as Spark keeps: {@code spark.kafka.consumer.cache.capacity}. */
    private static final int MOST_KEPT = 64;
    /** How long a poll waits before the task looks whether it was killed. */
    private static final long POLL_MILLISECONDS = 1_000;

    private static final long LONGEST_KEPT_NANOS = 300_000_000_000L;

    /**
     * Kafka's default of {@code fetch.max.wait.ms}: so long the broker may hold back the answer to the last fetch, and the
     * consumer waits for it before it fetches of another partition.
     */
    private static final long LAST_FETCH_NANOS = 500_000_000L;

    private static final LinkedHashMap<Key, PartitionConsumer> KEPT = new LinkedHashMap<>();
    /** How many consumers tasks have now. */
    private static int taken;

    private final Key key;
    private final TopicPartition partition;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private Iterator<ConsumerRecord<byte[], byte[]>> fetched = Collections.emptyIterator();
    /** The first record that the range before did not include; null if there is none. */
    private ConsumerRecord<byte[], byte[]> ahead;
    /** The offset that {@code fetched} continues with; nothing is known of what is before it. */
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
     * Returns a consumer of the partition that no other task has.
     *
     * @param of the query or run that it is for: another one must not find what this one has fetched
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
        // Counted only now: no task gives back a consumer that could not be created.
        synchronized (KEPT) {
            taken++;
        }
        return created;
    }

    /** Removes the consumer of the topic that was kept for the longest time; null if none can begin another partition. */
    private static PartitionConsumer removeLongest(Key key) {
        long latest = System.nanoTime() - LAST_FETCH_NANOS;
        for (PartitionConsumer each : KEPT.values()) {
            if (each.key.readsSameTopic(key)) {
                return each.keptAt - latest <= 0 ? KEPT.remove(each.key) : null;
            }
        }
        return null;
    }

    /** Keeps the consumer for another task, and closes those that no task has used for long. */
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

    /** Ends the consumer of a task, which does not keep it. */
    @Override
    public void close() {
        synchronized (KEPT) {
            taken--;
        }
        end();
    }

    /** Ends the consumer without waiting for the broker: it belongs to no group, so nothing is left to say. */
    private void end() {
        consumer.close(Duration.ZERO);
    }

    /** Begins a range; records that are fetched already are used if it continues where the last one ended. */
    void begin(long offset) {
        if (offset != next) {
            fetched = Collections.emptyIterator();
            ahead = null;
            next = offset;
            consumer.seek(partition, offset);
        }
    }

    /**
     * Returns the next record before {@code until}; null if there is none.
     *
     * @param patience how many milliseconds to wait for a broker that gives no record
     * @throws IllegalStateException if records of the range are not in the topic any more, or do not come in time
     */
    ConsumerRecord<byte[], byte[]> next(long until, long patience) {
        while (next < until) {
            ConsumerRecord<byte[], byte[]> record = ahead;
            ahead = null;
            if (record == null) {
                if (!fetched.hasNext()) {
                    fetch(until, patience);
                    continue;
                }
                record = fetched.next();
            }
            if (record.offset() >= until) {
                // Offsets before it were markers of transactions, or were compacted away.
                ahead = record;
                next = until;
                return null;
            }
            next = record.offset() + 1;
            return record;
        }
        return null;
    }

    private void fetch(long until, long patience) {
        long deadline = System.nanoTime() + patience * 1_000_000;
        try {
            while (true) {
                // What is left of a range may be markers of transactions, behind which the consumer is already.
                long position = consumer.position(partition);
                if (position > next) {
                    next = Math.min(position, until);
                    return;
                }
                fetched = consumer.poll(Duration.ofMillis(Math.min(patience, POLL_MILLISECONDS)))
                        .records(partition)
                        .iterator();
                if (fetched.hasNext()) {
                    return;
                }
                if (consumer.position(partition) == next && System.nanoTime() - deadline >= 0) {
                    throw late(patience);
                }
            }
        } catch (OffsetOutOfRangeException gone) {
            throw lost(gone);
        }
    }

    private RuntimeException late(long patience) {
        long earliest = consumer.beginningOffsets(List.of(partition)).get(partition);
        long latest = consumer.endOffsets(List.of(partition)).get(partition);
        if (next < earliest || next >= latest) {
            return lost(null);
        }
        return new UncheckedIOException(
                new IOException("topic " + partition.topic() + ", partition " + partition.partition()
                        + ": no record came from offset " + next + " on within " + patience + " ms"));
    }

    private IllegalStateException lost(OffsetOutOfRangeException gone) {
        return new IllegalStateException(
                "topic " + partition.topic() + ", partition " + partition.partition() + ": offset " + next
                        + " is not in the topic any more; some data may have been lost",
                gone);
    }
}
