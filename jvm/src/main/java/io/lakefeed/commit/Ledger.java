package io.lakefeed.commit;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.SnapshotSummary;
import org.apache.iceberg.TableMetadata;

/**
 * Reads the commits of a feed from a table's metadata.
 *
 * <p>The summary of a feed's snapshot has {@value #FEED}, {@value #COMMIT_ID}, {@value #RANGES} and {@value #FENCE}.
 * Ranges are {@code {"topic":{"id":"…","ranges":{"0":[start,end]}}}}, with {@code "marks":{"0":["…","…"]}} if the
 * source has its own sequence numbers. Because snapshots expire, a commit also stores the feed's position in the table
 * property {@value #POSITION} plus the feed's name.
 */
final class Ledger {
    static final String FEED = "lakefeed.feed";
    static final String COMMIT_ID = "lakefeed.commit-id";
    static final String RANGES = "lakefeed.ranges";
    static final String COUNTS = "lakefeed.counts";
    static final String FENCE = "lakefeed.fence";
    /** The number of rows that the commit must add; absent if the number is not known before the commit. */
    static final String ROWS = "lakefeed.rows";
    /** With the value {@code sparse}, the feed may leave out batches, but not repeat a batch or go back. */
    static final String CONTINUITY = "lakefeed.continuity";

    /**
     * The move, in a commit that moves the feed to other offsets and adds no rows: {@code
     * {"reason":"rewind","positions":{"topic":{"id":"…","ranges":{"0":[from,to]}}}}}. The id in {@code positions} is
     * the topic's id before the move. The ranges of the commit are empty and begin at the new offsets. If a rollback
     * has made the old offsets unknown, the commit has {@code "unknown":true} instead of positions.
     */
    static final String MOVED = "lakefeed.moved";

    /**
     * The takeover, in the first commit of a feed that takes the table over from another tool: {@code
     * {"from":"…","place":"…","after":snapshot id or null}}.
     */
    static final String ADOPTED = "lakefeed.adopted";

    /** The feed whose older or skipped records a backfill's commit adds. Backfills have their own fence. */
    static final String BACKFILL_OF = "lakefeed.backfill-of";

    /** Suffix of the feed's name in the fence of its backfills. */
    static final String BACKFILLS = ".backfills";

    /** Id of a replay of dead letters. */
    static final String REPLAY = "lakefeed.replay";

    /** The feed whose dead letters a replay's commit lands; the commit has no ranges. Replays have their own fence. */
    static final String REPLAY_OF = "lakefeed.replay-of";

    static final String REPLAYS = ".replays";

    /** The branch that a feed commits to: a property, followed by the feed's name; absent for {@code main}. */
    static final String BRANCH = "lakefeed.branch.";

    static final String POSITION = "lakefeed.position.";
    /** The fence that a feed's driver has taken last: a property, followed by the feed's name. */
    static final String FENCES = "lakefeed.fence.";

    /** The fence that was taken with an empty snapshot: an entry in its summary, followed by the feed's name. */
    static final String TAKEN = "lakefeed.fence-taken.";

    /** Prefix of a plug-in's entries in a summary; the table has them as properties, too, because snapshots expire. */
    static final String KEPT = "lakefeed.kept.";

    /** The value of the property {@link #POSITION} after a rollback that has removed all commits of the feed. */
    static final String ROLLED_BACK = "rolled-back";

    private static final ObjectMapper JSON = new ObjectMapper();

    private Ledger() {}

    /**
     * The facts about a commit by which the next commit is checked.
     *
     * @param moved whether the commit moved the feed: empty ranges do not show it, because a batch's ranges can be
     * empty, too
     */
    record Commit(String commitId, long snapshotId, long sequenceNumber, JsonNode ranges, boolean moved) {
        static Commit of(Snapshot snapshot) {
            Map<String, String> summary = snapshot.summary();
            return new Commit(
                    summary.get(COMMIT_ID),
                    snapshot.snapshotId(),
                    snapshot.sequenceNumber(),
                    parsed(summary.get(RANGES)),
                    summary.containsKey(MOVED));
        }

        /** Returns whether {@code other} retries this commit: equal id and, because ids can repeat, equal ranges. */
        boolean is(Commit other) {
            return commitId != null && commitId.equals(other.commitId) && ranges.equals(other.ranges);
        }
    }

    static String branch(TableMetadata table, String feed) {
        return table.properties().getOrDefault(BRANCH + feed, SnapshotRef.MAIN_BRANCH);
    }

    /** Returns the newest snapshot of a feed's branch; null if the branch has none. */
    static Snapshot head(TableMetadata table, String feed) {
        String branch = branch(table, feed);
        if (branch.equals(SnapshotRef.MAIN_BRANCH)) {
            return table.currentSnapshot();
        }
        SnapshotRef ref = table.ref(branch);
        return ref == null ? null : table.snapshot(ref.snapshotId());
    }

    static Long headId(TableMetadata table, String feed) {
        Snapshot head = head(table, feed);
        return head == null ? null : head.snapshotId();
    }

    /** Returns the feed of a batch, move, backfill or replay, by its summary; null for another writer's commit. */
    static String owner(Map<String, String> summary) {
        return Stream.of(FEED, BACKFILL_OF, REPLAY_OF)
                .map(summary::get)
                .filter(Objects::nonNull)
                .findFirst()
                .orElse(null);
    }

    /** Returns the feed for whose drivers, backfills or replays this property is the fence; null for no fence. */
    static String fenced(String fence) {
        String name = fence.substring(FENCES.length());
        for (String suffix : List.of(BACKFILLS, REPLAYS)) {
            if (name.endsWith(suffix)) {
                return name.substring(0, name.length() - suffix.length());
            }
        }
        return name;
    }

    /**
     * Returns the newest commit of a feed in {@code head} and its ancestors, or null.
     *
     * @throws BatchRefused if the table was rolled back to before all known commits of the feed
     */
    static Commit last(TableMetadata table, Long head, String feed) {
        Snapshot found = newest(table, head, feed);
        if (found != null) {
            return Commit.of(found);
        }
        // No existing ancestor has a commit of the feed: the feed is new, the snapshots have expired, or a rollback
        // removed them.
        String recorded = table.properties().get(POSITION + feed);
        if (recorded == null) {
            return null;
        }
        Commit position = recorded.equals(ROLLED_BACK) ? null : Position.ofJson(recorded).commit();
        if (position == null
                || table.snapshot(position.snapshotId()) != null
                || !mayDescendFrom(table, head, position.sequenceNumber())) {
            throw new BatchRefused("the table was rolled back to before the commits of feed '" + feed
                    + "'; the feed's position is unknown");
        }
        return position;
    }

    /**
     * Returns whether an expired snapshot with this sequence number may be an ancestor of {@code head}: the oldest
     * existing ancestor has a higher number, and had a parent. Otherwise another engine has rolled the table back.
     */
    static boolean mayDescendFrom(TableMetadata table, Long head, long sequenceNumber) {
        Snapshot oldest = line(table, head).reduce((newer, older) -> older).orElse(null);
        return oldest != null
                && (oldest.parentId() != null || followsFiles(oldest))
                && oldest.sequenceNumber() > sequenceNumber;
    }

    /**
     * Returns whether a snapshot without a parent id once had a parent, whose id pyiceberg has removed after the parent
     * expired. If so, the snapshot's totals include files of other snapshots; the first snapshot of a table has only
     * its own.
     */
    private static boolean followsFiles(Snapshot snapshot) {
        Map<String, String> summary = snapshot.summary();
        return !summary.getOrDefault(SnapshotSummary.DELETED_FILES_PROP, "0").equals("0")
                || !summary.getOrDefault(SnapshotSummary.TOTAL_DATA_FILES_PROP, "0")
                        .equals(summary.getOrDefault(SnapshotSummary.ADDED_FILES_PROP, "0"));
    }

    /** Returns whether a snapshot is {@code head} or one of its ancestors, or was one before it expired. */
    static boolean descends(TableMetadata table, Long head, long snapshotId, long sequenceNumber) {
        return line(table, head).anyMatch(each -> each.snapshotId() == snapshotId)
                || table.snapshot(snapshotId) == null && mayDescendFrom(table, head, sequenceNumber);
    }

    /** Returns whether {@code ancestor} is the snapshot, an ancestor of it, or the oldest ancestor's expired parent. */
    static boolean descendsFrom(TableMetadata table, Snapshot snapshot, long ancestor) {
        return line(table, snapshot == null ? null : snapshot.snapshotId())
                .anyMatch(each -> each.snapshotId() == ancestor || Objects.equals(each.parentId(), ancestor));
    }

    /** Returns the snapshot {@code head} and its existing ancestors, newest first. */
    static Stream<Snapshot> line(TableMetadata table, Long head) {
        return Stream.iterate(
                head == null ? null : table.snapshot(head),
                Objects::nonNull,
                each -> each.parentId() == null ? null : table.snapshot(each.parentId()));
    }

    static Snapshot newest(TableMetadata table, Long head, String feed) {
        return line(table, head)
                .filter(each -> feed.equals(each.summary().get(FEED)) && each.summary().containsKey(RANGES))
                .findFirst()
                .orElse(null);
    }

    /** Returns why a commit cannot follow {@code last}; empty if it begins at the end of {@code last}, or is a move. */
    static List<String> faults(JsonNode last, Map<String, String> summary) {
        JsonNode ranges = parsed(summary.get(RANGES));
        JsonNode moved = positions(summary);
        boolean sparse = "sparse".equals(summary.get(CONTINUITY));
        List<String> faults = new ArrayList<>();
        ranges.properties().forEach(topic -> {
            JsonNode before = last.path(topic.getKey());
            JsonNode left = moved.path(topic.getKey());
            String id = topic.getValue().path("id").asText("");
            String idBefore = before.path("id").asText("");
            boolean another = !id.isEmpty() && !idBefore.isEmpty() && !id.equals(idBefore);
            if (another && !idBefore.equals(left.path("id").asText(""))) {
                faults.add("topic " + topic.getKey() + " was recreated (id " + id + ", was " + idBefore + ")");
            }
            topic.getValue().path("ranges").properties().forEach(partition -> {
                JsonNode ended = before.path("ranges").path(partition.getKey()).path(1);
                JsonNode move = left.path("ranges").path(partition.getKey());
                long start = partition.getValue().path(0).asLong();
                String name = topic.getKey() + "-" + partition.getKey();
                if (move.isArray() && !ended.isMissingNode() && move.path(0).asLong() != ended.asLong()) {
                    faults.add(name + " is to be moved from " + move.path(0).asLong() + ", the table ends at " + ended.asLong());
                } else if (move.isArray() && move.path(1).asLong() != start) {
                    faults.add(name + " is to be moved to " + move.path(1).asLong() + " and begins at " + start);
                } else if (!move.isArray() && !ended.isMissingNode()
                        && (sparse ? start < ended.asLong() : start != ended.asLong())) {
                    faults.add(name + " begins at " + start + ", the table ends at " + ended.asLong());
                } else if (!move.isArray() && !sparse) {
                    faults.addAll(marked(name, before, topic.getValue(), partition.getKey()));
                }
            });
        });
        if (!sparse) {
            last.properties().forEach(topic -> topic.getValue().path("ranges").fieldNames().forEachRemaining(partition -> {
                boolean left = moved.has(topic.getKey())
                        && !topic.getValue().path("id").equals(ranges.path(topic.getKey()).path("id"));
                if (!left && ranges.path(topic.getKey()).path("ranges").path(partition).isMissingNode()) {
                    faults.add(topic.getKey() + "-" + partition + " is in the table but not in the batch");
                }
            }));
        }
        return faults;
    }

    /** Compares a source's own sequence numbers, because equal counts do not prove that no record is missing. */
    private static List<String> marked(String name, JsonNode before, JsonNode now, String partition) {
        JsonNode ended = before.path("marks").path(partition).path(1);
        JsonNode begins = now.path("marks").path(partition).path(0);
        boolean same = ended.isMissingNode() || begins.isMissingNode() || ended.equals(begins);
        return same
                ? List.of()
                : List.of(name + " begins after " + begins.asText() + ", the table ends at " + ended.asText());
    }

    /** Describes ranges that a feed at {@code position} will read itself, or that belong to a topic with another id. */
    static List<String> ahead(JsonNode position, JsonNode ranges) {
        List<String> ahead = new ArrayList<>();
        ranges.properties().forEach(topic -> topic.getValue().path("ranges").properties().forEach(partition -> {
            JsonNode stands = position.path(topic.getKey());
            JsonNode ended = stands.path("ranges").path(partition.getKey()).path(1);
            long end = partition.getValue().path(1).asLong();
            if (!stands.path("id").equals(topic.getValue().path("id")) || end > ended.asLong(-1)) {
                ahead.add(topic.getKey() + "-" + partition.getKey() + " up to " + end + ", it is at " + ended.asLong(0));
            }
        }));
        return ahead;
    }

    /** Returns the positions that a commit moves the feed from and to; a missing node if the commit is no move. */
    static JsonNode positions(Map<String, String> summary) {
        return parsed(summary.getOrDefault(MOVED, "{}")).path("positions");
    }

    /** Returns whether a commit moves the feed from an unknown position; if the position is known, refuses it. */
    static boolean movesFromUnknown(Map<String, String> summary) {
        return parsed(summary.getOrDefault(MOVED, "{}")).path("unknown").asBoolean();
    }

    static JsonNode parsed(String json) {
        try {
            return JSON.readTree(json);
        } catch (JsonProcessingException | IllegalArgumentException unreadable) {
            throw new BatchRefused("these are not the offset ranges of a commit, which lakefeed writes as JSON: " + json);
        }
    }
}
