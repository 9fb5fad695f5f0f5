package io.lakefeed.commit;

import java.util.Map;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;

/**
 * The last replay of a feed's dead letters that has landed, as the table's property {@value #PROPERTY} and the feed's name
 * keeps it: {@code <id> <snapshot id> <sequence number>}. Changed in the commit of the replay.
 *
 * <p>A replay that was cut off between its commit and the deletion of its letters is told by it however long ago that was: its
 * snapshot expires. One is enough: whoever replays settles what the one before left, under a newer fence.
 *
 * @param id the replay's
 * @param snapshotId its commit
 * @param sequenceNumber the commit's
 */
record LastReplay(String id, long snapshotId, long sequenceNumber) {
    static final String PROPERTY = "lakefeed.replayed.";

    /** The one that a snapshot lands, or null. */
    static LastReplay landedBy(Snapshot snapshot) {
        Map<String, String> summary = snapshot.summary();
        String id = summary.containsKey(Ledger.REPLAY_OF) ? summary.get(Ledger.REPLAY) : null;
        return id == null ? null : new LastReplay(id, snapshot.snapshotId(), snapshot.sequenceNumber());
    }

    /** The feed's last one that the table's present state has, or null. */
    static LastReplay of(TableMetadata table, String feed) {
        String text = table.properties().get(PROPERTY + feed);
        LastReplay last = text == null ? null : parsed(text);
        // Another engine may have rolled the table back, and left the property behind.
        return last != null && last.isIn(table) ? last : null;
    }

    /** Whether a table's present state has its rows. */
    boolean isIn(TableMetadata table) {
        Snapshot head = table.currentSnapshot();
        return Ledger.descends(table, head == null ? null : head.snapshotId(), snapshotId, sequenceNumber);
    }

    static LastReplay parsed(String text) {
        String[] parts = text.split(" ");
        return new LastReplay(parts[0], Long.parseLong(parts[1]), Long.parseLong(parts[2]));
    }

    @Override
    public String toString() {
        return id + " " + snapshotId + " " + sequenceNumber;
    }
}
