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
 * Ranges are {@code {"topic":{"id":"…","ranges":{"0":[start,end]}}}}, with {@code "marks":{"0":["…","…"]}} where the
 * source has sequence numbers of its own. The same commit stores the newest one in the table's properties ({@value
 * #POSITION} and the feed's name), because snapshots expire.
 */
final class Ledger {
    static final String FEED = "lakefeed.feed";
    static final String COMMIT_ID = "lakefeed.commit-id";
    static final String RANGES = "lakefeed.ranges";
    static final String COUNTS = "lakefeed.counts";
    static final String FENCE = "lakefeed.fence";
    /** The number of rows that the commit must add, where it is known before. */
    static final String ROWS = "lakefeed.rows";
    /**
     * {@code sparse} lets a feed leave batches out, as where only dead letters are written. It may not repeat one or go
     * back.
     */
    static final String CONTINUITY = "lakefeed.continuity";

    /**
     * Marks a commit that moves the feed to other positions and adds no rows: {@code
     * {"reason":"rewind","positions":{"topic":{"id":"…","ranges":{"0":[from,to]}}}}}. The id is that of the topic
     * before the move. The ranges of the commit are empty and begin at the new position. After a rollback that leaves
     * the position unknown it is {@code "unknown":true} instead of positions.
     */
    static final String MOVED = "lakefeed.moved";

    /**
     * Marks the first commit of a feed that takes the table over from another tool: {@code
     * {"from":"…","place":"…","after":snapshot id or null}}.
     */
    static final String ADOPTED = "lakefeed.adopted";

    /**
     * The feed of a backfill: its commit adds records from before the feed's start, or records that were left out.
     * Backfills have their own fence.
     */
    static final String BACKFILL_OF = "lakefeed.backfill-of";

    /** Suffix of the feed's name in the fence of its backfills. */
    static final String BACKFILLS = ".backfills";

    /** Id of a replay of dead letters. */
    static final String REPLAY = "lakefeed.replay";

    /** The feed of a replay: its commit has no ranges. Replays have their own fence. */
    static final String REPLAY_OF = "lakefeed.replay-of";

    /** Suffix of the feed's name in the fence of its replays. */
    static final String REPLAYS = ".replays";

    /** Property (with the feed's name) of the branch that the feed lands in; without it that is {@code main}. */
    static final String BRANCH = "lakefeed.branch.";

    static final String POSITION = "lakefeed.position.";
    /** Property (with the feed's name) of the highest fence that a driver has taken. */
    static final String FENCES = "lakefeed.fence.";

    /** Key (with the feed's name) in the summary of an empty snapshot: the fence that its commit took. */
    static final String TAKEN = "lakefeed.fence-taken.";

    /** The recorded position after a rollback behind all commits of the feed. */
    static final String ROLLED_BACK = "rolled-back";

    private static final ObjectMapper JSON = new ObjectMapper();

    private Ledger() {}

    /**
     * A commit, as far as the check of the next one needs it.
     *
     * @param moved whether it moved the feed; a batch may be without records too
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

        /** Returns whether the other is a retry of this commit. The id alone could belong to another run's batch. */
        boolean is(Commit other) {
            return commitId != null && commitId.equals(other.commitId) && ranges.equals(other.ranges);
        }
    }

    /** Returns the branch that a feed lands in. */
    static String branch(TableMetadata table, String feed) {
        return table.properties().getOrDefault(BRANCH + feed, SnapshotRef.MAIN_BRANCH);
    }

    /** Returns the newest snapshot of a feed's branch; null while the branch has none. */
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

    /** Returns the feed that a snapshot with this summary is of, whatever it does for it; null if it is of none. */
    static String owner(Map<String, String> summary) {
        return Stream.of(FEED, BACKFILL_OF, REPLAY_OF)
                .map(summary::get)
                .filter(Objects::nonNull)
                .findFirst()
                .orElse(null);
    }

    /** Returns the feed that a fence is of: the feed's own, or that of its backfills or replays. */
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
     * Returns the newest commit of a feed that {@code head} descends from, or null.
     *
     * @throws BatchRefused if it is unknown because the table was rolled back to before it
     */
    static Commit last(TableMetadata table, Long head, String feed) {
        Snapshot found = newest(table, head, feed);
        if (found != null) {
            return Commit.of(found);
        }
        // No snapshot has a commit: the feed is new, or the snapshots expired, or a rollback removed them from this
        // line.
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
     * Returns whether an expired snapshot can be older than the oldest one that exists in this line. It cannot if the
     * line is known to its root, or to a snapshot before it: then another engine has rolled the table back.
     */
    static boolean mayDescendFrom(TableMetadata table, Long head, long sequenceNumber) {
        Snapshot oldest = line(table, head).reduce((newer, older) -> older).orElse(null);
        return oldest != null
                && (oldest.parentId() != null || followsFiles(oldest))
                && oldest.sequenceNumber() > sequenceNumber;
    }

    /**
     * Returns whether the totals of a snapshot without a parent count files that it has not added. Then it had a parent:
     * pyiceberg removes the id of an expired parent. The first snapshot of a table, or of a replaced one, has only its
     * own files.
     */
    private static boolean followsFiles(Snapshot snapshot) {
        Map<String, String> summary = snapshot.summary();
        return !summary.getOrDefault(SnapshotSummary.DELETED_FILES_PROP, "0").equals("0")
                || !summary.getOrDefault(SnapshotSummary.TOTAL_DATA_FILES_PROP, "0")
                        .equals(summary.getOrDefault(SnapshotSummary.ADDED_FILES_PROP, "0"));
    }

    /** Returns whether the line of snapshots up to {@code head} has this one, or had it before it expired. */
    static boolean descends(TableMetadata table, Long head, long snapshotId, long sequenceNumber) {
        return line(table, head).anyMatch(each -> each.snapshotId() == snapshotId)
                || table.snapshot(snapshotId) == null && mayDescendFrom(table, head, sequenceNumber);
    }

    /** Returns whether a snapshot is this one or descends from it, as far as its line exists; that one may have expired. */
    static boolean descendsFrom(TableMetadata table, Snapshot snapshot, long ancestor) {
        return line(table, snapshot == null ? null : snapshot.snapshotId())
                .anyMatch(each -> each.snapshotId() == ancestor || Objects.equals(each.parentId(), ancestor));
    }

    /** Returns the existing snapshots up to {@code head}, newest first. */
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

    /**
     * Returns the faults of a commit that follows {@code last}. It has none if it begins where that ended, or names
     * that position as the one that it moves away from.
     */
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

    /**
     * Compares sequence numbers where the source has them, as Kinesis does: the same record number after another one is
     * another place.
     */
    private static List<String> marked(String name, JsonNode before, JsonNode now, String partition) {
        JsonNode ended = before.path("marks").path(partition).path(1);
        JsonNode begins = now.path("marks").path(partition).path(0);
        boolean same = ended.isMissingNode() || begins.isMissingNode() || ended.equals(begins);
        return same
                ? List.of()
                : List.of(name + " begins after " + begins.asText() + ", the table ends at " + ended.asText());
    }

    /** Describes the ranges that a feed at {@code position} would read itself, and those of another topic. */
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

    /** Returns the positions that a commit moves the feed from and to; a missing node if it does not move it. */
    static JsonNode positions(Map<String, String> summary) {
        return parsed(summary.getOrDefault(MOVED, "{}")).path("positions");
    }

    /**
     * Returns whether a commit declares that it moves the feed from an unknown position. The check believes it only
     * where the position is unknown.
     */
    static boolean movesFromUnknown(Map<String, String> summary) {
        return parsed(summary.getOrDefault(MOVED, "{}")).path("unknown").asBoolean();
    }

    static JsonNode parsed(String json) {
        try {
            return JSON.readTree(json);
        } catch (JsonProcessingException | IllegalArgumentException unreadable) {
            throw new BatchRefused("these are not the offset ranges of a commit: " + json);
        }
    }
}
