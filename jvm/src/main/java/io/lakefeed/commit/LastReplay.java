package io.lakefeed.commit;

import java.util.Map;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;

/**
 * The last committed replay of a feed's dead letters. The replay's commit stores it in the table property {@value
 * #PROPERTY} plus the feed's name: {@code <id> <snapshot id> <sequence number>}.
 *
 * <p>A replay may be interrupted between its commit and the deletion of its dead letters. The property shows that it
 * was committed, even after its snapshot has expired. One property is enough, because a replay with a newer fence first
 * finishes the previous replay.
 */
record LastReplay(String id, long snapshotId, long sequenceNumber) {
    static final String PROPERTY = "lakefeed.replayed.";

    static LastReplay landedBy(Snapshot snapshot) {
        Map<String, String> summary = snapshot.summary();
        String id = summary.containsKey(Ledger.REPLAY_OF) ? summary.get(Ledger.REPLAY) : null;
        return id == null ? null : new LastReplay(id, snapshot.snapshotId(), snapshot.sequenceNumber());
    }

    /** Returns the feed's last replay, or null; its snapshot is, or was, the current snapshot or an ancestor of it. */
    static LastReplay of(TableMetadata table, String feed) {
        String text = table.properties().get(PROPERTY + feed);
        LastReplay last = text == null ? null : parsed(text);
        // If another engine has rolled the table back, the property is out of date.
        return last != null && last.isIn(table, feed) ? last : null;
    }

    boolean isIn(TableMetadata table, String feed) {
        return Ledger.descends(table, Ledger.headId(table, feed), snapshotId, sequenceNumber);
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
