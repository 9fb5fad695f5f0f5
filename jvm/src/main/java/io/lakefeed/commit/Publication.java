package io.lakefeed.commit;

import java.util.Map;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.exceptions.CommitFailedException;

/**
 * Publishes the commits of a feed's branch: moves {@code main} to an audited snapshot of the branch.
 *
 * <p>Iceberg's own fast-forward moves {@code main} to the branch's newest snapshot, which may not be audited yet.
 */
public final class Publication {
    private static final int TRIES = 20;

    private Publication() {}

    /**
     * Compares {@code main} with a feed's branch: {@code published} if {@code main} has all commits of the branch;
     * {@code ahead} if only the branch has further commits; {@code diverged} if {@code main} has commits that the
     * branch lacks; {@code missing} if the branch does not exist.
     */
    public static String state(Table table, String feed) {
        TableMetadata metadata = FeedLedger.metadata(table);
        Snapshot head = Ledger.head(metadata, feed);
        return head == null ? "missing" : state(metadata, head.snapshotId());
    }

    /**
     * Moves {@code main} to one of its descendants, and sets properties in the same commit. Nothing changes unless the
     * state is {@code ahead}.
     *
     * @return the state before the move: see {@link #state(Table, String)}
     */
    public static String publish(Table table, long snapshotId, Map<String, String> properties) {
        TableOperations operations = ((HasTableOperations) table).operations();
        for (int attempt = 1; ; attempt++) {
            TableMetadata base = operations.refresh();
            String state = state(base, snapshotId);
            if (!state.equals("ahead")) {
                return state;
            }
            try {
                operations.commit(
                        base,
                        TableMetadata.buildFrom(base)
                                .setBranchSnapshot(snapshotId, SnapshotRef.MAIN_BRANCH)
                                .setProperties(properties)
                                .build());
                return state;
            } catch (CommitFailedException conflict) {
                // The feed's next batch, or another writer's commit to main, came first: compare the branches again.
                if (attempt >= TRIES) {
                    throw conflict;
                }
            }
        }
    }

    /** Moves a feed's branch, and thereby the feed's position, back to {@code main}; drops the unpublished rows. */
    public static void discard(Table table, String feed) {
        TableOperations operations = ((HasTableOperations) table).operations();
        TableMetadata base = operations.refresh();
        long main = base.currentSnapshot().snapshotId();
        operations.commit(
                base,
                TableMetadata.buildFrom(base)
                        .setBranchSnapshot(main, Ledger.branch(base, feed))
                        .build());
    }

    /** Returns whether {@code main} has a commit of a feed; if not, {@link #discard} would lose the feed's position. */
    public static boolean hasPublished(Table table, String feed) {
        TableMetadata metadata = FeedLedger.metadata(table);
        Snapshot main = metadata.currentSnapshot();
        return main != null && Ledger.newest(metadata, main.snapshotId(), feed) != null;
    }

    private static String state(TableMetadata table, long snapshotId) {
        Snapshot main = table.currentSnapshot();
        Snapshot audited = table.snapshot(snapshotId);
        if (main == null) {
            return "ahead";
        }
        if (Ledger.descendsFrom(table, main, snapshotId)) {
            return "published";
        }
        return Ledger.descendsFrom(table, audited, main.snapshotId()) ? "ahead" : "diverged";
    }
}
