package io.lakefeed.commit;

import io.lakefeed.decode.LeftOut;
import java.io.Serializable;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** The outcomes of the records of one partition that one task has read. */
final class RangeOutcome implements Serializable {
    private static final long serialVersionUID = 1L;
    /** The most reasons that are counted separately: memory is bounded whatever the records hold. */
    private static final int MOST_REASONS = 20;

    private static final int LONGEST_REASON = 200;
    private static final String FURTHER = "for further reasons";

    final String topic;
    final int partition;
    final long firstOffset;
    /** Concurrent, because an executor sends heartbeats while the task runs. */
    final Set<Integer> schemaIds = ConcurrentHashMap.newKeySet();

    final Map<String, Reason> reasons = new ConcurrentHashMap<>();
    long records;
    long deadLetters;
    long skipped;
    long firstDead = Long.MAX_VALUE;
    long lastDead = -1;
    /** The rows whose records have fields that no column has, and one of these fields. */
    long leftOut;

    String leftOutField;
    /** Where and why the feed must stop; null if it need not. */
    String stop;

    /** Identifies a range in every attempt of its task. */
    record Key(String topic, int partition, long firstOffset) implements Serializable {}

    /** A kind of dead letter. Numbers in the text are replaced, so that a thousand positions are one kind. */
    public record Reason(String text, long count, String sample) implements Serializable {
        Reason and(Reason other) {
            return new Reason(text, count + other.count, sample);
        }
    }

    RangeOutcome(String topic, int partition, long firstOffset) {
        this.topic = topic;
        this.partition = partition;
        this.firstOffset = firstOffset;
    }

    Key key() {
        return new Key(topic, partition, firstOffset);
    }

    /** Stops the feed at a record; the first one is reported. */
    void stop(long offset, String reason) {
        if (stop == null) {
            stop = "topic " + topic + ", partition " + partition + ", offset " + offset + ": " + reason;
        }
    }

    void leaveOut(LeftOut field) {
        leftOut++;
        if (leftOutField == null) {
            leftOutField = field.described();
        }
    }

    void deadLetter(long offset, String reason) {
        deadLetters++;
        firstDead = Math.min(firstDead, offset);
        lastDead = Math.max(lastDead, offset);
        String text = reason.replaceAll("[0-9]+", "#");
        text = text.length() > LONGEST_REASON ? text.substring(0, LONGEST_REASON) + "…" : text;
        if (!reasons.containsKey(text) && reasons.size() >= MOST_REASONS) {
            text = FURTHER;
        }
        String kind = text;
        reasons.merge(
                kind,
                new Reason(kind, 1, topic + ", partition " + partition + ", offset " + offset + ": " + reason),
                Reason::and);
    }
}
