package io.lakefeed.commit;

import java.util.Map;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.HasTableOperations;
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
