package io.lakefeed.commit;

import java.util.Map;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.spark.CommitMetadata;
import org.apache.spark.sql.SparkSession;

/** Reads a table's ledger for Python, and commits without rows. */
public final class FeedLedger {
    private FeedLedger() {}

    /**
     * Returns a feed's position as JSON: {@code commit-id}, {@code snapshot-id} and {@code ranges} of its newest
     * commit, even after its snapshot expired, and {@code covered} if it is known. Returns null if the table has no
     * commit of the feed.
     *
     * @throws BatchRefused if the table was rolled back and its position is unknown
     */
    public static String position(Table table, String feed) {
        TableMetadata metadata = ((HasTableOperations) table).operations().current();
        Snapshot head = Ledger.head(metadata, feed);
        Position position = Position.of(metadata, head == null ? null : head.snapshotId(), feed);
        return position == null ? null : position.toJson();
    }

    /** Returns the newest snapshot of the branch that a feed lands in; null while that has none. */
    public static Snapshot head(Table table, String feed) {
        return Ledger.head(((HasTableOperations) table).operations().current(), feed);
    }

    /**
     * Returns whether the table has the rows of a replay. The last replay is always known, earlier ones while their
     * snapshots exist.
     */
    public static boolean hasReplay(Table table, String feed, String id) {
        TableMetadata metadata = ((HasTableOperations) table).operations().current();
        LastReplay last = LastReplay.of(metadata, feed);
        if (last != null && last.id().equals(id)) {
            return true;
        }
        Snapshot each = Ledger.head(metadata, feed);
        while (each != null && !id.equals(each.summary().get(Ledger.REPLAY))) {
            each = each.parentId() == null ? null : metadata.snapshot(each.parentId());
        }
        return each != null;
    }

    /** Returns whether the table's catalog detects concurrent changes of properties. */
    public static boolean guardsProperties(Table table) {
        return !(((HasTableOperations) table).operations() instanceof CheckedOperations checked) || checked.guardsProperties();
    }

    /** Commits a snapshot that adds no rows and carries these properties, to the branch of the feed that they name. */
    public static void commit(Table table, Map<String, String> properties) {
        AppendFiles append = table.newFastAppend();
        String feed = Ledger.owner(properties);
        if (feed != null) {
            append = append.toBranch(Ledger.branch(((HasTableOperations) table).operations().current(), feed));
        }
        properties.forEach(append::set);
        append.commit();
    }

    /** Runs a statement that changes rows, and adds these properties to the summary of its snapshot. */
    public static void commit(SparkSession spark, String statement, Map<String, String> properties) {
        CommitMetadata.withCommitProperties(
                properties,
                () -> {
                    spark.sql(statement);
                    return null;
                },
                RuntimeException.class);
    }
}
