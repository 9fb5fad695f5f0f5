package io.lakefeed.commit;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;

/**
 * The commits of a feed as a table's metadata tells them.
 *
 * <p>A snapshot of a feed has in its summary: {@value #FEED}, {@value #COMMIT_ID}, {@value #RANGES}
 * ({@code {"topic":{"id":"…","ranges":{"0":[start,end]}}}}), {@value #FENCE}. What the newest one says is kept in the table's
 * properties too ({@value #POSITION} and the feed's name), changed in the same commit: snapshots expire.
 */
final class Ledger {
    static final String FEED = "lakefeed.feed";
    static final String COMMIT_ID = "lakefeed.commit-id";
    static final String RANGES = "lakefeed.ranges";
    static final String COUNTS = "lakefeed.counts";
    static final String FENCE = "lakefeed.fence";
    /** How many rows the commit must add, where that is known before. */
    static final String ROWS = "lakefeed.rows";
    /** {@code sparse}: batches may be left out, as where only dead letters go; but none twice, and none from before. */
    static final String CONTINUITY = "lakefeed.continuity";

    /** The feed whose dead letters a commit lands; it has no ranges, and a fence of its own. */
    static final String REPLAY_OF = "lakefeed.replay-of";

    /** Behind the feed's name, in the name of the fence of its replays. */
    static final String REPLAYS = ".replays";

    static final String POSITION = "lakefeed.position.";
    /** Property, and the feed's name: the highest fence that a driver has taken. */
    static final String FENCES = "lakefeed.fence.";

    /** Recorded as position when a rollback has gone behind all commits that are left. */
    private static final String ROLLED_BACK = "rolled-back";

    private static final ObjectMapper JSON = new ObjectMapper();

    private Ledger() {}

    /** A commit as the next one has to know it. */
    record Commit(String commitId, long snapshotId, long sequenceNumber, JsonNode ranges) {
        static Commit of(Snapshot snapshot) {
            Map<String, String> summary = snapshot.summary();
            return new Commit(
                    summary.get(COMMIT_ID), snapshot.snapshotId(), snapshot.sequenceNumber(), parsed(summary.get(RANGES)));
        }

        /** Whether the other is the same commit tried again. An id alone could be that of another run's batch. */
        boolean is(Commit other) {
            return commitId != null && commitId.equals(other.commitId) && ranges.equals(other.ranges);
        }

        /** As a table property. */
        String toJson() {
            ObjectNode json = JSON.createObjectNode();
            json.put("commit-id", commitId).put("snapshot-id", snapshotId).put("sequence-number", sequenceNumber);
            return json.set("ranges", ranges).toString();
        }

        static Commit ofJson(String text) {
            JsonNode json = parsed(text);
            return new Commit(
                    json.path("commit-id").asText(null),
                    json.path("snapshot-id").asLong(),
                    json.path("sequence-number").asLong(),
                    json.path("ranges"));
        }
    }

    /**
     * The newest commit of a feed that {@code head} descends from, or null.
     *
     * @throws BatchRefused if it cannot be told, because the table was rolled back to before it
     */
    static Commit last(TableMetadata table, Long head, String feed) {
        Snapshot found = newest(table, head, feed);
        if (found != null) {
            return Commit.of(found);
        }
        // No snapshot tells: a new feed, or the snapshots have expired, or they are no ancestors any more.
        String recorded = table.properties().get(POSITION + feed);
        if (recorded == null) {
            return null;
        }
        Commit position = recorded.equals(ROLLED_BACK) ? null : Commit.ofJson(recorded);
        if (position == null || !mayDescendFrom(table, head, position)) {
            throw new BatchRefused("the table was rolled back to before the commits of feed '" + feed
                    + "' that it still knows; where the feed stands cannot be told");
        }
        return position;
    }

    /**
     * Whether the position can be below the oldest snapshot that is left of this line. It cannot if the line is known
     * to its root, or to a snapshot from before the position: then another engine has rolled the table back.
     */
    private static boolean mayDescendFrom(TableMetadata table, Long head, Commit position) {
        Snapshot oldest = head == null ? null : table.snapshot(head);
        while (oldest != null && oldest.parentId() != null && table.snapshot(oldest.parentId()) != null) {
            oldest = table.snapshot(oldest.parentId());
        }
        return oldest != null && oldest.parentId() != null && oldest.sequenceNumber() > position.sequenceNumber();
    }

    private static Snapshot newest(TableMetadata table, Long head, String feed) {
        Snapshot snapshot = head == null ? null : table.snapshot(head);
        while (snapshot != null && !(feed.equals(snapshot.summary().get(FEED)) && snapshot.summary().containsKey(RANGES))) {
            Long parent = snapshot.parentId();
            snapshot = parent == null ? null : table.snapshot(parent);
        }
        return snapshot;
    }

    /** The position to record when the table has moved to another line of snapshots. */
    static String recordedAfterMove(TableMetadata table, String feed) {
        Snapshot head = table.currentSnapshot();
        Snapshot found = head == null ? null : newest(table, head.snapshotId(), feed);
        return found == null ? ROLLED_BACK : Commit.of(found).toJson();
    }

    /** What is wrong with ranges that come after {@code last}; empty if they go on exactly where it ended. */
    static List<String> faults(JsonNode last, JsonNode ranges, boolean sparse) {
        List<String> faults = new ArrayList<>();
        ranges.properties().forEach(topic -> {
            JsonNode before = last.path(topic.getKey());
            String id = topic.getValue().path("id").asText("");
            String idBefore = before.path("id").asText("");
            if (!id.isEmpty() && !idBefore.isEmpty() && !id.equals(idBefore)) {
                faults.add("topic " + topic.getKey() + " is another one now (id " + id + ", was " + idBefore + ")");
            }
            topic.getValue().path("ranges").properties().forEach(partition -> {
                JsonNode ended = before.path("ranges").path(partition.getKey()).path(1);
                long start = partition.getValue().path(0).asLong();
                if (!ended.isMissingNode() && (sparse ? start < ended.asLong() : start != ended.asLong())) {
                    faults.add(topic.getKey() + "-" + partition.getKey() + " begins at " + start + ", the table ends at "
                            + ended.asLong());
                }
            });
        });
        if (!sparse) {
            last.properties().forEach(topic -> topic.getValue().path("ranges").fieldNames().forEachRemaining(partition -> {
                if (ranges.path(topic.getKey()).path("ranges").path(partition).isMissingNode()) {
                    faults.add(topic.getKey() + "-" + partition + " is in the table but not in the batch");
                }
            }));
        }
        return faults;
    }

    static JsonNode parsed(String json) {
        try {
            return JSON.readTree(json);
        } catch (JsonProcessingException | IllegalArgumentException unreadable) {
            throw new BatchRefused("these are not the offset ranges of a commit: " + json);
        }
    }
}
