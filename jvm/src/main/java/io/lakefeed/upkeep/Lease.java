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
 * One upkeep job at a time: a table property that says who is at work and until when.
 *
 * <p>Set on the very metadata that was looked at, and not through {@code updateProperties}, which on a conflict looks away
 * and sets it all the same. Where the catalog does not guard properties, it comes with an empty snapshot in the same commit:
 * of two that take it together one conflicts. Protects work from being done twice, not the table: its commits do that.
 */
public final class Lease {
    /** Name of the property; its value is {@code <who> <milliseconds since 1970>}. */
    public static final String PROPERTY = "lakefeed.upkeep.lease";

    /** In the summary of a snapshot that adds nothing: who has taken the lease with it. */
    static final String TAKEN = "lakefeed.upkeep.lease-taken";

    private static final int TRIES = 50;

    private Lease() {}

    /**
     * Takes the lease or makes it longer.
     *
     * @param now milliseconds since 1970; a lease that ends before is nobody's
     * @param until when it ends
     * @return null if it is {@code who}'s now, else the property's value: somebody else has it
     */
    public static String take(Table table, String who, long now, long until) {
        TableOperations operations = ((HasTableOperations) table).operations();
        boolean guarded = FeedLedger.guardsProperties(table);
        for (int attempt = 1; ; attempt++) {
            TableMetadata base = operations.refresh();
            String held = held(base, now);
            // What is ours still nobody else takes: it can be made longer without a snapshot.
            Snapshot mark = null;
            if (!guarded && held == null) {
                mark = table.newFastAppend().set(TAKEN, who).apply();
                // What it was made on top of, which may be younger.
                base = operations.current();
                held = held(base, now);
            }
            if (held != null && !isOf(who, held)) {
                discard(table, mark);
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
                // It may have landed all the same, its answer lost: the snapshot's list stays, an orphan at worst.
                backOff(attempt, conflict);
            }
        }
    }

    /** Gives the lease back, if it is still {@code who}'s, and notes in the same commit what was done. */
    public static void release(Table table, String who, Map<String, String> notes) {
        TableOperations operations = ((HasTableOperations) table).operations();
        boolean guarded = FeedLedger.guardsProperties(table);
        for (int attempt = 1; ; attempt++) {
            TableMetadata base = operations.refresh();
            String held = base.properties().get(PROPERTY);
            if (held == null || !isOf(who, held) || (!guarded && end(held) <= System.currentTimeMillis())) {
                // Somebody else's, or may become so at any moment.
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

    /** Who has the lease, as the property says it; null if nobody has. */
    private static String held(TableMetadata table, long now) {
        String held = table.properties().get(PROPERTY);
        return held != null && end(held) > now ? held : null;
    }

    /** The list of a snapshot that nobody has tried to commit. */
    private static void discard(Table table, Snapshot mark) {
        if (mark != null) {
            table.io().deleteFile(mark.manifestListLocation());
        }
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
