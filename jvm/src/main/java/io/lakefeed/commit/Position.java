package io.lakefeed.commit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;

/**
 * A feed's position in a table, stored in the table property {@value Ledger#POSITION} plus the feed's name.
 *
 * @param commit the feed's newest commit
 * @param covered the offsets that the table has; null if they are unknown
 * @param kept the offsets whose rows a rewind has left in the table, so that the table may have several rows of a
 * record
 * @param at the newest snapshot that has changed {@code covered}: a commit, a move or a backfill
 * @param sequence the sequence number of this snapshot
 */
record Position(Ledger.Commit commit, Covered covered, Covered kept, long at, long sequence) {
    String toJson() {
        ObjectNode json = JsonNodeFactory.instance.objectNode();
        json.put("commit-id", commit.commitId())
                .put("snapshot-id", commit.snapshotId())
                .put("sequence-number", commit.sequenceNumber())
                .put("moved", commit.moved())
                .set("ranges", commit.ranges());
        if (covered != null) {
            json.set("covered", covered.toJson());
            json.put("covered-at", at).put("covered-sequence", sequence);
        }
        if (!kept.isEmpty()) {
            json.set("kept", kept.toJson());
        }
        return json.toString();
    }

    static Position ofJson(String text) {
        JsonNode json = Ledger.parsed(text);
        Ledger.Commit commit = new Ledger.Commit(
                json.path("commit-id").asText(null),
                json.path("snapshot-id").asLong(),
                json.path("sequence-number").asLong(),
                json.path("ranges"),
                json.path("moved").asBoolean());
        Covered covered = json.has("covered") ? Covered.of(json.path("covered")) : null;
        return new Position(
                commit,
                covered,
                Covered.of(json.path("kept")),
                json.path("covered-at").asLong(),
                json.path("covered-sequence").asLong());
    }

    /**
     * Returns a feed's position as of {@code head}; null if it and its ancestors have no commit of the feed.
     *
     * @throws BatchRefused if the position is unknown
     */
    static Position of(TableMetadata table, Long head, String feed) {
        Ledger.Commit last = Ledger.last(table, head, feed);
        if (last == null) {
            return null;
        }
        String text = table.properties().get(Ledger.POSITION + feed);
        Position recorded = text == null || text.equals(Ledger.ROLLED_BACK) ? null : ofJson(text);
        // If another engine has rolled the table back, the property is out of date.
        boolean trusted = recorded != null
                && recorded.commit.snapshotId() == last.snapshotId()
                && Ledger.descends(table, head, recorded.at, recorded.sequence);
        return new Position(
                last,
                trusted ? recorded.covered : null,
                kept(table, head, feed, recorded == null ? Covered.nothing() : recorded.kept),
                trusted ? recorded.at : 0,
                trusted ? recorded.sequence : 0);
    }

    /** Returns the position after a further snapshot of the feed: a commit, a move, or a backfill. */
    static Position after(Position before, Snapshot snapshot, String feed) {
        boolean moves = feed.equals(snapshot.summary().get(Ledger.FEED));
        boolean unknown = "sparse".equals(snapshot.summary().get(Ledger.CONTINUITY))
                || Ledger.movesFromUnknown(snapshot.summary());
        Covered covered = before == null ? Covered.nothing() : before.covered;
        if (unknown) {
            covered = null;
        }
        if (covered != null) {
            covered = Covered.of(covered.toJson());
            apply(covered, snapshot);
        }
        Covered kept = before == null ? Covered.nothing() : Covered.of(before.kept.toJson());
        keepRows(kept, snapshot);
        Ledger.Commit commit = moves ? Ledger.Commit.of(snapshot) : before.commit;
        return new Position(commit, covered, kept, snapshot.snapshotId(), snapshot.sequenceNumber());
    }

    /**
     * Returns the offsets whose rows the moves up to {@code head} have left in the table.
     *
     * @param before the recorded offsets, from moves whose snapshots may have expired
     */
    private static Covered kept(TableMetadata table, Long head, String feed, Covered before) {
        List<Snapshot> line = new ArrayList<>(Ledger.line(table, head).toList());
        Collections.reverse(line);
        boolean whole = line.isEmpty() || line.get(0).parentId() == null;
        Covered kept = whole ? Covered.nothing() : Covered.of(before.toJson());
        line.stream().filter(each -> concerns(each, feed)).forEach(each -> keepRows(kept, each));
        return kept;
    }

    private static void keepRows(Covered kept, Snapshot snapshot) {
        Map<String, String> summary = snapshot.summary();
        if (!summary.containsKey(Ledger.MOVED)) {
            return;
        }
        if (deletesRows(summary)) {
            kept.remove(rewound(summary));
        } else {
            kept.add(rewound(summary));
        }
        kept.keep(Ledger.parsed(summary.get(Ledger.RANGES)));
    }

    private static boolean deletesRows(Map<String, String> summary) {
        return Ledger.parsed(summary.get(Ledger.MOVED)).has("deleted");
    }

    /**
     * Returns the position to record when the table gets a current snapshot that does not descend from the previous
     * one, as by a rollback: the newest commit, and the offsets, of the new snapshot and its ancestors.
     */
    static String afterMove(TableMetadata base, TableMetadata changed, String feed) {
        Long head = Ledger.headId(changed, feed);
        Snapshot newest = Ledger.newest(changed, head, feed);
        if (newest == null) {
            return Ledger.ROLLED_BACK;
        }
        return new Position(
                        Ledger.Commit.of(newest),
                        coveredAfterMove(base, changed, feed),
                        kept(changed, head, feed, keptBefore(base, changed, feed)),
                        head,
                        changed.snapshot(head).sequenceNumber())
                .toJson();
    }

    /** Returns the kept offsets without the moves that the new snapshot lacks, and with rows that it has again. */
    private static Covered keptBefore(TableMetadata base, TableMetadata changed, String feed) {
        String text = base.properties().get(Ledger.POSITION + feed);
        Covered kept = text.equals(Ledger.ROLLED_BACK) ? Covered.nothing() : Covered.of(ofJson(text).kept.toJson());
        List<Long> entered = Ledger.line(changed, Ledger.headId(changed, feed)).map(Snapshot::snapshotId).toList();
        Ledger.line(base, Ledger.headId(base, feed))
                .takeWhile(each -> !entered.contains(each.snapshotId()))
                .filter(each -> concerns(each, feed) && each.summary().containsKey(Ledger.MOVED))
                .filter(each -> deletesRows(each.summary()))
                .forEach(each -> kept.add(rewound(each.summary())));
        return kept;
    }

    private static Covered coveredAfterMove(TableMetadata base, TableMetadata changed, String feed) {
        String text = base.properties().get(Ledger.POSITION + feed);
        Covered known = text.equals(Ledger.ROLLED_BACK) ? null : ofJson(text).covered;
        List<Snapshot> left = Ledger.line(base, Ledger.headId(base, feed)).toList();
        List<Snapshot> entered = Ledger.line(changed, Ledger.headId(changed, feed)).toList();
        List<Long> shared = entered.stream().map(Snapshot::snapshotId).toList();
        int leftFrom = 0;
        while (leftFrom < left.size() && !shared.contains(left.get(leftFrom).snapshotId())) {
            leftFrom++;
        }
        if (known == null || leftFrom == left.size()) {
            return null;
        }
        Covered covered = Covered.of(known.toJson());
        for (Snapshot each : left.subList(0, leftFrom)) {
            if (concerns(each, feed) && !takeBack(covered, each)) {
                return null;
            }
        }
        List<Snapshot> added = new ArrayList<>(entered.subList(0, shared.indexOf(left.get(leftFrom).snapshotId())));
        Collections.reverse(added);
        added.stream().filter(each -> concerns(each, feed)).forEach(each -> apply(covered, each));
        return covered;
    }

    private static boolean concerns(Snapshot snapshot, String feed) {
        Map<String, String> summary = snapshot.summary();
        return summary.containsKey(Ledger.RANGES)
                && (feed.equals(summary.get(Ledger.FEED)) || feed.equals(summary.get(Ledger.BACKFILL_OF)));
    }

    private static void apply(Covered covered, Snapshot snapshot) {
        Map<String, String> summary = snapshot.summary();
        JsonNode ranges = Ledger.parsed(summary.get(Ledger.RANGES));
        if (summary.containsKey(Ledger.MOVED)) {
            covered.remove(rewound(summary));
            covered.keep(ranges);
        }
        covered.add(ranges);
    }

    /** Undoes a snapshot's change of {@code covered}; returns false if it moved the feed to a recreated topic. */
    private static boolean takeBack(Covered covered, Snapshot snapshot) {
        Map<String, String> summary = snapshot.summary();
        JsonNode ranges = Ledger.parsed(summary.get(Ledger.RANGES));
        if (summary.containsKey(Ledger.MOVED)) {
            JsonNode rewound = rewound(summary);
            for (Map.Entry<String, JsonNode> topic : Ledger.positions(summary).properties()) {
                if (!topic.getValue().path("id").equals(ranges.path(topic.getKey()).path("id"))) {
                    return false;
                }
            }
            covered.add(rewound);
            return true;
        }
        covered.remove(ranges);
        return true;
    }

    /** Returns the ranges that a move makes the feed read again. */
    private static JsonNode rewound(Map<String, String> summary) {
        ObjectNode rewound = JsonNodeFactory.instance.objectNode();
        Ledger.positions(summary).properties().forEach(topic -> {
            ObjectNode ranges = rewound.putObject(topic.getKey())
                    .put("id", topic.getValue().path("id").asText(""))
                    .putObject("ranges");
            topic.getValue().path("ranges").properties().forEach(partition -> {
                long from = partition.getValue().path(0).asLong();
                long to = partition.getValue().path(1).asLong();
                if (to < from) {
                    ranges.putArray(partition.getKey()).add(to).add(from);
                }
            });
        });
        return rewound;
    }
}
