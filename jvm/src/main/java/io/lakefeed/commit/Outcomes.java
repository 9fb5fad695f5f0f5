package io.lakefeed.commit;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.lakefeed.decode.LeftOut;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.spark.SparkContext;
import org.apache.spark.util.AccumulatorV2;

/**
 * Counts the outcomes of one batch's records (row, dead letter or skipped) for each partition, and collects their
 * writers' schemas.
 *
 * <p>{@link OutcomeFunction} fills this accumulator in the tasks. The driver has all counts when the tasks have ended,
 * before a sink commits. Counts are stored by the first offset of their range, so a range counts once even if its task
 * runs twice or a plan scans its source twice.
 */
public final class Outcomes extends AccumulatorV2<Outcomes.RangeOutcome, List<Outcomes.RangeOutcome>> {
    private static final long serialVersionUID = 1L;
    private static final ObjectMapper JSON = new ObjectMapper();
    /** The batches that this driver is writing, by commit id. */
    private static final Map<String, Outcomes> OPEN = new ConcurrentHashMap<>();

    /** A concurrent map, because an executor sends heartbeats while the task runs. */
    private final Map<RangeOutcome.Key, RangeOutcome> ranges = new ConcurrentHashMap<>();
    /** The limits for dead letters; on the driver only. */
    private transient List<Bound> bounds = List.of();

    private transient Set<Integer> coveredSchemas;
    private transient boolean requiresFields;
    private transient String refusal;
    /** The rows that the batch's commit has added; null before the commit, or if the sink does not report them. */
    private transient volatile Long landed;

    private transient volatile Supplier<Map<String, String>> entries = Map::of;

    /** The time ({@link System#nanoTime}) when the sink was last allowed to commit; 0 if it was not allowed yet. */
    private transient volatile long allowedAt;

    /** A limit for the number and the share of dead letters in this batch and in earlier batches, added up. */
    private record Bound(long mostDeadLetters, double mostShare, long recordsBefore, long deadLettersBefore) {
        boolean allows(long deadLetters, long records) {
            long all = deadLettersBefore + deadLetters;
            return all <= mostDeadLetters && all <= mostShare * (recordsBefore + records);
        }
    }

    Outcomes() {}

    /** Starts counting a batch, on the driver; {@link #close} ends the count. */
    public static Outcomes open(SparkContext spark, String commitId) {
        Outcomes outcomes = new Outcomes();
        spark.register(outcomes, "lakefeed outcomes");
        OPEN.put(commitId, outcomes);
        return outcomes;
    }

    /** Returns the open batch with this commit id, or null. */
    public static Outcomes of(String commitId) {
        return commitId == null ? null : OPEN.get(commitId);
    }

    public OutcomeFunction function() {
        return new OutcomeFunction(this);
    }

    /** Starts the next batch of a query whose plan serves all its batches: clears the counts and the limits. */
    public void next(String commitId, String nextCommitId) {
        OPEN.remove(commitId, this);
        reset();
        bounds = List.of();
        coveredSchemas = null;
        requiresFields = false;
        refusal = null;
        allowedAt = 0;
        landed = null;
        entries = Map::of;
        OPEN.put(nextCommitId, this);
    }

    /** Stores the number of rows that a commit has added, if this JVM has an open batch for it. */
    static void land(String commitId, long rows) {
        Outcomes outcomes = of(commitId);
        if (outcomes != null) {
            outcomes.landed = rows;
        }
    }

    /** Returns the number of rows that a batch's commit has added; null if it is unknown. */
    public static Long landed(String commitId) {
        Outcomes outcomes = of(commitId);
        return outcomes == null ? null : outcomes.landed;
    }

    public static void close(String commitId) {
        OPEN.remove(commitId);
    }

    /**
     * Adds a limit for dead letters, which the commit checks.
     *
     * @param mostDeadLetters the most dead letters
     * @param mostShare the highest allowed ratio of dead letters to records
     * @param recordsBefore the number of records of earlier batches, which the limit includes
     * @param deadLettersBefore the number of dead letters of earlier batches
     */
    public void bound(long mostDeadLetters, double mostShare, long recordsBefore, long deadLettersBefore) {
        bounds = new ArrayList<>(bounds);
        bounds.add(new Bound(mostDeadLetters, mostShare, recordsBefore, deadLettersBefore));
    }

    /** Adds functions for entries of the commit's summary, which are called when all tasks have ended. */
    public void describe(Supplier<Map<String, String>> ofCommit) {
        entries = ofCommit;
    }

    Map<String, String> entries() {
        return entries.get();
    }

    /** Sets the writers' schemas that the table covers; a record of any other schema makes the commit fail. */
    public void cover(Collection<Integer> schemaIds) {
        coveredSchemas = new HashSet<>(schemaIds);
    }

    /** Returns why the commit was refused: {@code schemas}, {@code fields}, {@code stop} or {@code budget}; or null. */
    public String refusal() {
        return refusal;
    }

    /**
     * Checks the batch when all tasks have ended and before the sink commits.
     *
     * @throws BatchRefused if the batch must not be committed
     */
    public void check() {
        refusal = null;
        if (coveredSchemas != null && !coveredSchemas.containsAll(schemaIds())) {
            refusal = "schemas";
            throw new BatchRefused("the batch has records of schemas that its rows do not cover yet: " + schemaIds());
        }
        if (requiresFields && newField() != null) {
            refusal = "fields";
            throw new BatchRefused("the batch has records with fields that can become columns: " + newFields());
        }
        if (stop() != null) {
            refusal = "stop";
            throw new BatchRefused("a record stops the feed: " + stop());
        }
        long records = records();
        long dead = deadLetters();
        if (!bounds.stream().allMatch(bound -> bound.allows(dead, records))) {
            refusal = "budget";
            throw new BatchRefused(dead + " of " + records + " records are dead letters, more than the error budget allows");
        }
        allowedAt = Math.max(1, System.nanoTime());
    }

    /** Returns how many seconds ago the sink was allowed to commit; -1 if it was not allowed, or did not ask. */
    public double secondsSinceAllowed() {
        long at = allowedAt;
        return at == 0 ? -1 : Math.max(0, System.nanoTime() - at) / 1e9;
    }

    /** Returns the record that stops the feed, with the reason; null if no record does. */
    public String stop() {
        return ranges.values().stream()
                .filter(each -> each.stop != null)
                .min(Comparator.comparing((RangeOutcome each) -> each.topic).thenComparing(each -> each.partition))
                .map(each -> each.stop)
                .orElse(null);
    }

    public long records() {
        return ranges.values().stream().mapToLong(each -> each.records).sum();
    }

    public long deadLetters() {
        return ranges.values().stream().mapToLong(each -> each.deadLetters).sum();
    }

    public long skipped() {
        return ranges.values().stream().mapToLong(each -> each.skipped).sum();
    }

    /** Returns the number of rows whose records have a field without a column. */
    public long leftOut() {
        return ranges.values().stream().mapToLong(each -> each.leftOut).sum();
    }

    /** Returns a field without a column: the same field, whatever the order of the tasks; null if there is none. */
    public String leftOutField() {
        return ranges.values().stream()
                .filter(each -> each.leftOut > 0)
                .min(Comparator.comparing((RangeOutcome each) -> !each.leftOutField.endsWith(")"))
                        .thenComparing(each -> each.topic)
                        .thenComparing(each -> each.partition)
                        .thenComparing(each -> each.firstOffset))
                .map(each -> each.leftOutField)
                .orElse(null);
    }

    /** Makes the commit fail if a row's record has a field that can become a column. */
    public void requireFields() {
        requiresFields = true;
    }

    /** Returns the path of a field that can become a column, or null. */
    public String newField() {
        return ranges.values().stream()
                .filter(each -> each.newField != null)
                .min(Comparator.comparing((RangeOutcome each) -> each.topic)
                        .thenComparing(each -> each.partition)
                        .thenComparing(each -> each.firstOffset))
                .map(each -> each.newField)
                .orElse(null);
    }

    /** Returns the offset of each partition's first row with a field that can become a column. */
    public String newFields() {
        Map<String, Map<Integer, Long>> topics = new TreeMap<>();
        for (RangeOutcome range : ranges.values()) {
            if (range.newField != null) {
                topics.computeIfAbsent(range.topic, any -> new TreeMap<>())
                        .merge(range.partition, range.newFieldOffset, Math::min);
            }
        }
        return json(topics);
    }

    public Set<Integer> schemaIds() {
        Set<Integer> all = new TreeSet<>();
        ranges.values().forEach(each -> all.addAll(each.schemaIds));
        return all;
    }

    /** Returns the reasons of dead letters, the most frequent first, each with its count and one record's position. */
    public List<RangeOutcome.Reason> reasons() {
        Map<String, RangeOutcome.Reason> all = new LinkedHashMap<>();
        for (RangeOutcome range : ranges.values()) {
            range.reasons.forEach((text, reason) -> all.merge(text, reason, RangeOutcome.Reason::and));
        }
        List<RangeOutcome.Reason> sorted = new ArrayList<>(all.values());
        sorted.sort((one, other) -> Long.compare(other.count(), one.count()));
        return sorted;
    }

    /**
     * Returns the counts for a snapshot's summary: {@code {"topic":{"0":[records,dead letters,skipped]}}}, without
     * partitions that have no records. If records of rows have a field without a column, the number of these rows
     * follows as a fourth number.
     */
    public String toJson() {
        Map<String, Map<Integer, long[]>> topics = new TreeMap<>();
        for (RangeOutcome range : ranges.values()) {
            long[] counts = of(topics, range, 0, 0, 0, 0);
            counts[0] += range.records;
            counts[1] += range.deadLetters;
            counts[2] += range.skipped;
            counts[3] += range.leftOut;
        }
        topics.values().forEach(each -> each.replaceAll((any, counts) -> counts[3] == 0 ? Arrays.copyOf(counts, 3) : counts));
        return json(topics);
    }

    /** Returns the range of each partition's dead letters: {@code {"topic":{"0":[first,last + 1]}}}. */
    public String deadRanges() {
        Map<String, Map<Integer, long[]>> topics = new TreeMap<>();
        for (RangeOutcome range : ranges.values()) {
            if (range.deadLetters > 0) {
                long[] span = of(topics, range, Long.MAX_VALUE, 0);
                span[0] = Math.min(span[0], range.firstDead);
                span[1] = Math.max(span[1], range.lastDead + 1);
            }
        }
        return json(topics);
    }

    private static long[] of(Map<String, Map<Integer, long[]>> topics, RangeOutcome range, long... first) {
        return topics.computeIfAbsent(range.topic, any -> new TreeMap<>())
                .computeIfAbsent(range.partition, any -> first);
    }

    private static String json(Object topics) {
        try {
            return JSON.writeValueAsString(topics);
        } catch (JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    @Override
    public boolean isZero() {
        // When Spark deserializes a counter, Spark registers it with the task before the fields are read, and a
        // heartbeat may call this method in between. An exception would end the executor's heartbeats, and two minutes
        // later the driver would give the executor up.
        return ranges == null || ranges.isEmpty();
    }

    @Override
    public Outcomes copy() {
        Outcomes copy = new Outcomes();
        copy.ranges.putAll(ranges);
        return copy;
    }

    @Override
    public void reset() {
        ranges.clear();
    }

    @Override
    public void add(RangeOutcome range) {
        ranges.put(range.key(), range);
    }

    @Override
    public void merge(AccumulatorV2<RangeOutcome, List<RangeOutcome>> other) {
        ((Outcomes) other).ranges.forEach(ranges::put);
    }

    @Override
    public List<RangeOutcome> value() {
        return List.copyOf(ranges.values());
    }

    /** The outcomes of the records that one task has read from one partition. */
    static final class RangeOutcome implements Serializable {
        private static final long serialVersionUID = 1L;
        /** The most reasons with a count of their own, so that broken records cannot fill the memory. */
        private static final int MOST_REASONS = 20;

        private static final int LONGEST_REASON = 200;
        private static final String FURTHER = "for further reasons";

        final String topic;
        final int partition;
        final long firstOffset;
        /** A concurrent set, because the executor sends heartbeats while the task runs. */
        final Set<Integer> schemaIds = ConcurrentHashMap.newKeySet();

        final Map<String, Reason> reasons = new ConcurrentHashMap<>();
        long records;
        long deadLetters;
        long skipped;
        long firstDead = Long.MAX_VALUE;
        long lastDead = -1;
        /** The number of rows whose records have a field without a column; {@link #leftOutField} is an example. */
        long leftOut;

        String leftOutField;
        /** The path of a field that can become a column, with the offset of its record; null if there is none. */
        String newField;

        long newFieldOffset;
        /** The record that stops the feed, with the reason; null if there is none. */
        String stop;

        /** Identifies a range: equal in all attempts of the range's task. */
        record Key(String topic, int partition, long firstOffset) implements Serializable {}

        /** A reason of dead letters, without its numbers, so that equal errors at different offsets have one reason. */
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

        /** Stops the feed at a record; if several records stop it, the first is reported. */
        void stop(long offset, String reason) {
            if (stop == null) {
                stop = "topic " + topic + ", partition " + partition + ", offset " + offset + ": " + reason;
            }
        }

        void leaveOut(LeftOut field, long offset) {
            leftOut++;
            if (newField == null && field.newColumn() != null) {
                newField = field.newColumn();
                newFieldOffset = offset;
            }
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
}
