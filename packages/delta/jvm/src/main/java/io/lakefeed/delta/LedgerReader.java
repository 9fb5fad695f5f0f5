package io.lakefeed.delta;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.CommitInfo;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Follows a feed's ledger from one version of the table to the next.
 *
 * <p>It keeps what it has read, so a batch without commits of others reads nothing of the log. It also finds out whether
 * a commit of another writer has taken the table back: RESTORE, REPLACE and CLONE leave the domain's metadata as it is,
 * which would then name offsets whose rows are gone, or rows that a rewind has removed would be there again.
 */
final class LedgerReader {
    private static final Set<String> REPLACES = Set.of(
            "CREATE OR REPLACE TABLE",
            "CREATE OR REPLACE TABLE AS SELECT",
            "REPLACE TABLE",
            "REPLACE TABLE AS SELECT",
            "CLONE");

    private final DeltaLog log;
    private final String feed;

    private Ledger newest = Ledger.EMPTY;
    private long version = -1;
    private String table;

    /** Why the table may not have the rows of the newest entry; null if it has them. */
    private String fault;

    /** The versions after the newest entry that may not have its rows. */
    private final Set<Long> faulty = new HashSet<>();

    LedgerReader(DeltaLog log, String feed) {
        this.log = log;
        this.feed = feed;
    }

    /**
     * Returns the ledger of the newest version.
     *
     * @param snapshot the newest version
     */
    synchronized Ledger at(Snapshot snapshot) {
        if (snapshot.version() < 0) {
            return Ledger.EMPTY;
        }
        if (!snapshot.metadata().id().equals(table)) {
            newest = Ledger.of(snapshot, feed);
            table = snapshot.metadata().id();
            // A ledger without an entry has no rows to lose.
            version = newest.entry == null ? snapshot.version() : newest.version;
            fault = null;
            faulty.clear();
        }
        if (snapshot.version() < version) {
            throw new IllegalStateException("lakefeed: the table's newest version is " + snapshot.version()
                    + ", and it had version " + version + " before, so files of its log are missing");
        }
        if (snapshot.version() > version) {
            var changes = log.getChanges(version + 1, snapshot.version(), Option.empty(), false);
            while (changes.hasNext()) {
                Tuple2<Object, scala.collection.immutable.Seq<Action>> change = changes.next();
                apply((long) change._1(), CollectionConverters.asJava(change._2()));
                version = (long) change._1();
            }
            // Versions before the log's newest checkpoint may have been deleted.
            version = snapshot.version();
        }
        return newest;
    }

    /** Notes an entry that this driver has committed. */
    synchronized void landed(Ledger entry) {
        newest = entry;
        version = entry.version;
        faulty.clear();
    }

    /** Returns why the table may not have the rows of the newest entry; null if it has them. */
    synchronized String fault() {
        return fault;
    }

    private void apply(long number, Iterable<Action> actions) {
        for (Action action : actions) {
            Ledger entry = Ledger.in(action, feed);
            if (entry != null) {
                newest = new Ledger(entry.number, number, entry.entry);
                faulty.clear();
            } else if (action instanceof CommitInfo info && newest.entry != null) {
                fault = afterwards(info, number);
            }
        }
        if (fault != null) {
            faulty.add(number);
        }
    }

    /** Returns why the table may not have the rows after a commit; null if it has them. */
    private String afterwards(CommitInfo info, long number) {
        String operation = String.valueOf(info.operation());
        boolean restores = operation.equals("RESTORE");
        if (restores && hasRows(restored(info))) {
            return null;
        }
        if (fault != null || !restores && !REPLACES.contains(operation)) {
            // The first one says which version still has the rows.
            return fault;
        }
        return "lakefeed: version " + number + " of the table is " + operation
                + ", so rows of the feed's last batches may be gone, or rows that were removed may be there again";
    }

    private boolean hasRows(long number) {
        return number >= newest.version && !faulty.contains(number);
    }

    /** Returns the version that a RESTORE goes back to; -1 for a RESTORE to a time, which does not name a version. */
    private static long restored(CommitInfo info) {
        Option<String> given = info.operationParameters().get("version");
        String text = given.isEmpty() ? "" : String.valueOf(given.get()).replace("\"", "");
        return text.matches("\\d+") ? Long.parseLong(text) : -1;
    }
}
