package io.lakefeed.upkeep;

import io.lakefeed.commit.FeedLedger;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.CommitStateUnknownException;

/**
 * A lease that lets only one upkeep job work on a table: a table property names the job that owns the lease, and the
 * lease's end.
 *
 * <p>The property is set by a commit that is based on the metadata in which the lease was free. {@code
 * updateProperties} would set the property after a conflict without a new check. Some catalogs detect no conflict of
 * properties; for them the commit also adds an empty snapshot, so that of two concurrent jobs one gets a conflict. The
 * lease only saves duplicate work; the checks of the commits protect the table.
 */
public final class Lease {
    /** Name of the property; its value is {@code <owner> <milliseconds since 1970>}. */
    public static final String PROPERTY = "lakefeed.upkeep.lease";

    /** Key in the summary of that empty snapshot; the value is the job that has taken the lease. */
    static final String TAKEN = "lakefeed.upkeep.lease-taken";

    private static final int TRIES = 50;

    private Lease() {}

    /**
     * Takes or extends the lease.
     *
     * @param now the time in milliseconds since 1970; a lease that has ended by then is free
     * @param until the time when the lease ends
     * @return null if {@code who} has the lease now; otherwise the property's value, which names the other owner
     */
    public static String take(Table table, String who, long now, long until) {
        TableOperations operations = ((HasTableOperations) table).operations();
        boolean guarded = FeedLedger.guardsProperties(table);
        for (int attempt = 1; ; attempt++) {
            TableMetadata base = operations.refresh();
            String held = held(base, now);
            // Extending the lease needs no empty snapshot, because no other job can take it meanwhile.
            Snapshot mark = null;
            if (!guarded && held == null) {
                mark = table.newFastAppend().set(TAKEN, who).apply();
                // The new snapshot's parent is the current snapshot of the metadata that apply() has read, which may be
                // newer.
                base = operations.current();
                held = held(base, now);
            }
            if (held != null && !isOf(who, held)) {
                if (mark != null) {
                    // The new snapshot is not committed: delete the manifest list that apply() has written for it.
                    table.io().deleteFile(mark.manifestListLocation());
                }
                return held;
            }
            TableMetadata.Builder changed =
                    TableMetadata.buildFrom(base).setProperties(Map.of(PROPERTY, who + " " + until));
            if (mark != null) {
                changed.setBranchSnapshot(mark, SnapshotRef.MAIN_BRANCH);
            }
            try {
                operations.commit(base, changed.build());
                return null;
            } catch (CommitFailedException | CommitStateUnknownException conflict) {
                // The commit may have succeeded without an answer: do not delete the manifest list. At worst it is an
                // orphan file.
                backOff(attempt, conflict);
            }
        }
    }

    /** Releases the lease if {@code who} still has it, and sets properties in the same commit. */
    public static void release(Table table, String who, Map<String, String> notes) {
        TableOperations operations = ((HasTableOperations) table).operations();
        boolean guarded = FeedLedger.guardsProperties(table);
        for (int attempt = 1; ; attempt++) {
            TableMetadata base = operations.refresh();
            String held = base.properties().get(PROPERTY);
            if (held == null || !isOf(who, held) || (!guarded && end(held) <= System.currentTimeMillis())) {
                // Another job owns the lease, or may take it at any moment.
                return;
            }
            try {
                operations.commit(
                        base,
                        TableMetadata.buildFrom(base)
                                .setProperties(notes)
                                .removeProperties(Set.of(PROPERTY))
                                .build());
                return;
            } catch (CommitFailedException | CommitStateUnknownException conflict) {
                backOff(attempt, conflict);
            }
        }
    }

    /** Returns the property, which names the owner; null if the lease is free. */
    private static String held(TableMetadata table, long now) {
        String held = table.properties().get(PROPERTY);
        return held != null && end(held) > now ? held : null;
    }

    private static boolean isOf(String who, String held) {
        return held.startsWith(who + " ");
    }

    private static long end(String held) {
        try {
            return Long.parseLong(held.substring(held.lastIndexOf(' ') + 1));
        } catch (NumberFormatException unreadable) {
            return 0;
        }
    }

    private static void backOff(int attempt, RuntimeException conflict) {
        if (attempt >= TRIES) {
            throw conflict;
        }
        try {
            Thread.sleep(Math.min(20L * attempt, 500L));
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw conflict;
        }
    }
}
