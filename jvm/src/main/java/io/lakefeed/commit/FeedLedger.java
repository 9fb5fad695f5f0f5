package io.lakefeed.commit;

import java.util.Map;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.spark.CommitMetadata;
import org.apache.spark.sql.SparkSession;

/** What Python asks of a table's ledger, and the commits that it makes without rows. */
public final class FeedLedger {
    private FeedLedger() {}

    /**
     * Where a feed stands, as JSON: {@code commit-id}, {@code snapshot-id}, {@code ranges} of its newest commit, whether or
     * not its snapshot has expired, and {@code covered} if that is known; null if the table has no commit of it.
     *
     * @throws BatchRefused if the table was rolled back, and no longer tells
     */
    public static String position(Table table, String feed) {
        TableMetadata metadata = ((HasTableOperations) table).operations().current();
        Long head = metadata.currentSnapshot() == null ? null : metadata.currentSnapshot().snapshotId();
        Position position = Position.of(metadata, head, feed);
        return position == null ? null : position.toJson();
    }

    /**
     * Whether the table has the rows of a replay of a feed's dead letters. Of the last one it is known for ever, of earlier ones
     * as long as their snapshots are there.
     */
    public static boolean hasReplay(Table table, String feed, String id) {
        TableMetadata metadata = ((HasTableOperations) table).operations().current();
        LastReplay last = LastReplay.of(metadata, feed);
        if (last != null && last.id().equals(id)) {
            return true;
        }
        Snapshot each = metadata.currentSnapshot();
        while (each != null && !id.equals(each.summary().get(Ledger.REPLAY))) {
            each = each.parentId() == null ? null : metadata.snapshot(each.parentId());
        }
        return each != null;
    }

    /** Whether the table's catalog refuses a change of properties that another change came before. */
    public static boolean guardsProperties(Table table) {
        return !(((HasTableOperations) table).operations() instanceof CheckedOperations checked) || checked.guardsProperties();
    }

    /** Commits a snapshot that adds nothing and carries these properties. */
    public static void commit(Table table, Map<String, String> properties) {
        AppendFiles append = table.newFastAppend();
        properties.forEach(append::set);
        append.commit();
    }

    /** Runs a statement that changes rows, and puts these properties into the summary of its snapshot. */
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
