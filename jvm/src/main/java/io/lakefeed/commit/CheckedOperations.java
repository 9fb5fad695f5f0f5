package io.lakefeed.commit;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakefeed.sink.Uploads;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.iceberg.BaseMetastoreTableOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.SnapshotSummary;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.CleanableFailure;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;

/**
 * Accepts a feed's commit only if it begins where the feed's last commit ended and no newer driver has taken over.
 *
 * <p>Iceberg retries a commit whose answer was lost. This class recognises the retry by its commit id, and reports
 * success. A check in Iceberg's {@code validateWith} would refuse the retry, and Iceberg would then delete the files of
 * a committed snapshot. The delegate succeeds only if {@code base} is still the table's current metadata, so check and
 * commit are one atomic step, which each of Iceberg's retries repeats.
 */
final class CheckedOperations implements TableOperations {
    /** Iceberg's operations: not thread safe; loads of the table may share them ({@link FeedCatalog.KnownTables}). */
    private final TableOperations operations;
    /** The table's full name, the key of its metadata in {@link RecentTables}. */
    private final String name;
    /** The ids of snapshots whose commit got no successful answer, although the commit may have succeeded. */
    private final Set<Long> unanswered = ConcurrentHashMap.newKeySet();
    /** The metadata that this object has read last; another load of the table can have newer metadata. */
    private volatile TableMetadata loaded;

    CheckedOperations(TableOperations operations, String name) {
        this.operations = operations;
        this.name = name;
    }

    @Override
    public void commit(TableMetadata base, TableMetadata changed) {
        if (base == null) {
            delegate(null, changed, changed.snapshots());
            return;
        }
        checkFences(base, changed);
        List<Snapshot> added = new ArrayList<>();
        for (Snapshot each : changed.snapshots()) {
            if (base.snapshot(each.snapshotId()) == null) {
                added.add(each);
            }
        }
        Quiet.check(base, added);
        Map<String, String> positions = new HashMap<>();
        for (Snapshot snapshot : added) {
            Map<String, String> summary = snapshot.summary();
            String replayOf = summary.get(Ledger.REPLAY_OF);
            if (replayOf != null) {
                checkFence(base, summary, replayOf + Ledger.REPLAYS);
                positions.put(LastReplay.PROPERTY + replayOf, LastReplay.landedBy(snapshot).toString());
            }
            boolean moves = summary.containsKey(Ledger.FEED);
            String feed = moves ? summary.get(Ledger.FEED) : summary.get(Ledger.BACKFILL_OF);
            if (feed == null || !summary.containsKey(Ledger.RANGES)) {
                continue;
            }
            Position before = standing(changed, snapshot, feed);
            if (moves) {
                if (before != null && before.commit().is(Ledger.Commit.of(snapshot))) {
                    // This is a retry: the first attempt of the commit has succeeded, and its answer was lost.
                    noteRows(snapshot);
                    return;
                }
                check(base, snapshot, feed, before);
            } else {
                checkFence(base, summary, feed + Ledger.BACKFILLS);
                checkBackfill(summary, feed, before);
            }
            checkBranch(changed, snapshot, feed);
            positions.put(Ledger.POSITION + feed, Position.after(before, snapshot, feed).toJson());
        }
        added.forEach(each -> each.summary().forEach((key, value) -> {
            if (key.startsWith(Ledger.KEPT)) {
                positions.put(key, value);
            }
        }));
        if (added.isEmpty() && landedBefore(base, changed)) {
            return;
        }
        added.forEach(snapshot -> unanswered.add(snapshot.snapshotId()));
        TableMetadata committed = withProperties(base, changed, positions, added);
        if (!guardsProperties()) {
            awaitUploads();
        }
        delegate(base, committed, added);
        added.forEach(snapshot -> unanswered.remove(snapshot.snapshotId()));
        added.forEach(CheckedOperations::noteRows);
        RecentTables.put(name, committed);
    }

    /**
     * Commits; after a failure, reads the table to learn whether the commit has succeeded. A proxy can answer 401 to a
     * change that was applied, and a request that is sent twice conflicts with itself. After such failures, Iceberg
     * would delete the files of the commit ({@code CleanableFailure}).
     *
     * @throws CommitFailedException if another commit came first, so that Iceberg tries again: some catalogs answer a
     *     conflict by 400 or 500, after which it would give up (apache/iceberg#16644, lakekeeper/lakekeeper#1147)
     */
    private void delegate(TableMetadata base, TableMetadata changed, List<Snapshot> added) {
        try {
            synchronized (operations) {
                operations.commit(base, changed);
            }
        } catch (RuntimeException failure) {
            if (added.isEmpty()) {
                throw failure;
            }
            TableMetadata now = afterFailure(failure);
            if (!added.stream().allMatch(each -> now.snapshot(each.snapshotId()) != null)) {
                throw base != null && isOvertaken(base, now, added.get(0).parentId(), failure)
                        ? new CommitFailedException(failure, "another commit came first: %s", failure.getMessage())
                        : failure;
            }
        } finally {
            loaded = null;
        }
    }

    /** Stores the number of rows of a committed batch, so that the driver need not read it from the snapshot. */
    private static void noteRows(Snapshot snapshot) {
        Map<String, String> summary = snapshot.summary();
        String rows = summary.getOrDefault(SnapshotSummary.ADDED_RECORDS_PROP, "0");
        Outcomes.land(summary.get(Ledger.COMMIT_ID), Long.parseLong(rows));
    }

    /** Waits for a commit's uploads, because the catalog's server may write the metadata that names the files. */
    private void awaitUploads() {
        try {
            Uploads.await(operations.metadataFileLocation(""));
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /**
     * Returns whether another commit came first, so that Iceberg may send a failed one again. Unless the catalog has
     * refused the failed one, it may land late while a branch ends at its parent.
     */
    private static boolean isOvertaken(TableMetadata base, TableMetadata now, Long parent, RuntimeException failure) {
        if (failure instanceof CleanableFailure) {
            return !Objects.equals(base.metadataFileLocation(), now.metadataFileLocation());
        }
        return parent == null
                ? !now.refs().isEmpty()
                : now.refs().values().stream().noneMatch(each -> each.snapshotId() == parent);
    }

    /** Returns the table's metadata after a failed commit; throws an error that keeps the files if they are unknown. */
    private TableMetadata afterFailure(RuntimeException failure) {
        try {
            return refresh();
        } catch (RuntimeException unanswered) {
            failure.addSuppressed(unanswered);
            throw failure instanceof CommitStateUnknownException
                    ? failure
                    : new CommitStateUnknownException(failure.getMessage(), failure);
        }
    }

    /**
     * Returns whether the catalog detects concurrent changes of properties. Catalogs that replace the whole metadata
     * file detect them. A REST catalog checks only the requirements of a change, and there are none for properties.
     */
    boolean guardsProperties() {
        return operations instanceof BaseMetastoreTableOperations;
    }

    private static Position standing(TableMetadata changed, Snapshot snapshot, String feed) {
        try {
            return Position.of(changed, snapshot.parentId(), feed);
        } catch (BatchRefused unknown) {
            if (Ledger.movesFromUnknown(snapshot.summary())) {
                return null;
            }
            throw unknown;
        }
    }

    private static void check(TableMetadata base, Snapshot snapshot, String feed, Position last) {
        Map<String, String> summary = snapshot.summary();
        checkFence(base, summary, feed);
        checkAdoption(base, summary, feed, last);
        if (last != null) {
            List<String> faults = Ledger.faults(last.commit().ranges(), summary);
            if (!faults.isEmpty()) {
                throw new BatchRefused("the batch does not continue where feed '" + feed + "' ended in the table: "
                        + String.join("; ", faults));
            }
        } else if (summary.containsKey(Ledger.MOVED) && !Ledger.movesFromUnknown(summary)) {
            throw new BatchRefused("feed '" + feed + "' has no commit in the table, so it cannot be moved");
        }
        String rows = summary.get(Ledger.ROWS);
        String addedRows = summary.getOrDefault(SnapshotSummary.ADDED_RECORDS_PROP, "0");
        if (rows != null && !rows.equals(addedRows)) {
            throw new BatchRefused("the commit has " + addedRows + " rows, and should have " + rows);
        }
    }

    /** Checks that a commit is in the feed's branch, because each branch is a separate ledger. */
    private static void checkBranch(TableMetadata changed, Snapshot snapshot, String feed) {
        Snapshot head = Ledger.head(changed, feed);
        if (head == null || head.snapshotId() != snapshot.snapshotId()) {
            throw new BatchRefused("feed '" + feed + "' lands in the branch " + Ledger.branch(changed, feed)
                    + " of the table, and this commit is in another one");
        }
    }

    /**
     * Checks that the table is unchanged since the takeover compared the other tool's offsets with it. If that tool has
     * committed since then, the feed would land the records of that commit again.
     */
    private static void checkAdoption(TableMetadata base, Map<String, String> summary, String feed, Position last) {
        String adopted = summary.get(Ledger.ADOPTED);
        if (adopted == null) {
            return;
        }
        if (last != null) {
            throw new BatchRefused("feed '" + feed + "' has commits in the table already, so it cannot take the table over");
        }
        JsonNode after = Ledger.parsed(adopted).path("after");
        Snapshot head = Ledger.head(base, feed);
        while (head != null && !(after.isNumber() && head.snapshotId() == after.asLong())) {
            boolean takesFence = head.summary().keySet().stream().anyMatch(key -> key.startsWith(Ledger.TAKEN));
            if (!takesFence) {
                throw new BatchRefused("snapshot " + head.snapshotId() + " was committed after the position of feed '"
                        + feed + "' was compared with the table: the other tool still writes");
            }
            head = head.parentId() == null ? null : base.snapshot(head.parentId());
        }
        if (head == null && after.isNumber()) {
            throw new BatchRefused("the table was rolled back after the position of feed '" + feed
                    + "' was compared with it");
        }
    }

    /** Checks that the table has none of a backfill's records, and that the feed itself will not read them. */
    private static void checkBackfill(Map<String, String> summary, String feed, Position stands) {
        if (stands == null || stands.covered() == null) {
            throw new BatchRefused("it is not known which records of feed '" + feed + "' the table has");
        }
        JsonNode ranges = Ledger.parsed(summary.get(Ledger.RANGES));
        String overlap = stands.covered().overlap(ranges);
        if (overlap != null) {
            throw new BatchRefused("the backfill would duplicate records of feed '" + feed + "': " + overlap);
        }
        List<String> ahead = Ledger.ahead(stands.commit().ranges(), ranges);
        if (!ahead.isEmpty()) {
            throw new BatchRefused("feed '" + feed + "' will read these records itself: " + String.join("; ", ahead));
        }
    }

    private static void checkFence(TableMetadata base, Map<String, String> summary, String feed) {
        String taken = base.properties().get(Ledger.FENCES + feed);
        String fence = summary.get(Ledger.FENCE);
        if (taken != null && !taken.equals(fence)) {
            throw new BatchRefused("another driver has taken over feed '" + feed + "': its fence is " + taken
                    + ", this driver's " + fence);
        }
    }

    /**
     * Returns whether this change is a retry that would roll a branch back. Suppose that a commit succeeds, its answer
     * is lost, and another writer commits. Iceberg's retry of the first commit would set the branch back to the first
     * commit's snapshot, and so remove the second commit.
     */
    private boolean landedBefore(TableMetadata base, TableMetadata changed) {
        return changed.refs().entrySet().stream().anyMatch(branch -> {
            SnapshotRef head = base.ref(branch.getKey());
            long target = branch.getValue().snapshotId();
            return head != null && head.snapshotId() != target && unanswered.contains(target);
        });
    }

    /**
     * Adds the properties of feeds to a change. If a change is a rollback, or otherwise replaces the ancestors of the
     * branch, the feeds get the positions in the new ancestors, and replays that these lack are removed.
     */
    private static TableMetadata withProperties(
            TableMetadata base, TableMetadata changed, Map<String, String> positions, List<Snapshot> added) {
        Map<String, String> set = new HashMap<>(positions);
        Set<String> removed = new HashSet<>();
        if (Quiet.isEndedBy(base, added)) {
            removed.add(Quiet.PROPERTY);
        }
        base.properties().forEach((key, value) -> {
            if (key.startsWith(Ledger.POSITION)) {
                String feed = key.substring(Ledger.POSITION.length());
                if (movedAway(base, changed, feed)) {
                    set.put(key, Position.afterMove(base, changed, feed));
                    set.putAll(keptAfterMove(base, changed, feed));
                }
            } else if (key.startsWith(LastReplay.PROPERTY)) {
                String feed = key.substring(LastReplay.PROPERTY.length());
                if (movedAway(base, changed, feed) && !LastReplay.parsed(value).isIn(changed, feed)) {
                    removed.add(key);
                }
            }
        });
        return set.isEmpty() && removed.isEmpty()
                ? changed
                : TableMetadata.buildFrom(changed).setProperties(set).removeProperties(removed).build();
    }

    /** Returns plug-ins' entries as of the line that the table moves to; marks those that only the old line has. */
    private static Map<String, String> keptAfterMove(TableMetadata base, TableMetadata changed, String feed) {
        Map<String, String> kept = new HashMap<>();
        for (TableMetadata table : List.of(changed, base)) {
            Ledger.line(table, Ledger.headId(table, feed))
                    .filter(each -> feed.equals(Ledger.owner(each.summary())))
                    .flatMap(each -> each.summary().entrySet().stream())
                    .filter(each -> each.getKey().startsWith(Ledger.KEPT))
                    .forEach(each -> kept.putIfAbsent(
                            each.getKey(), table == changed ? each.getValue() : Ledger.ROLLED_BACK));
        }
        return kept;
    }

    private static boolean movedAway(TableMetadata base, TableMetadata changed, String feed) {
        Snapshot before = Ledger.head(base, feed);
        return before != null && !Ledger.descendsFrom(changed, Ledger.head(changed, feed), before.snapshotId());
    }

    private static void checkFences(TableMetadata base, TableMetadata changed) {
        changed.properties().forEach((key, fence) -> {
            String before = key.startsWith(Ledger.FENCES) ? base.properties().get(key) : null;
            if (before != null && !before.equals(fence) && number(fence) <= number(before)) {
                throw new BatchRefused("fence " + fence + " of feed '" + key.substring(Ledger.FENCES.length())
                        + "' is taken: the table has " + before);
            }
        });
    }

    private static long number(String fence) {
        return Long.parseLong(fence.split(" ")[0]);
    }

    @Override
    public TableMetadata current() {
        TableMetadata known = loaded;
        if (known == null) {
            synchronized (operations) {
                known = operations.current();
            }
            loaded = known;
        }
        return known;
    }

    @Override
    public TableMetadata refresh() {
        loaded = refresh(operations);
        return loaded;
    }

    /** Asks the catalog for the current metadata, and reads the metadata file only if it is not the known one. */
    static TableMetadata refresh(TableOperations operations) {
        synchronized (operations) {
            return operations.refresh();
        }
    }

    @Override
    public FileIO io() {
        return operations.io();
    }

    @Override
    public EncryptionManager encryption() {
        return operations.encryption();
    }

    @Override
    public String metadataFileLocation(String fileName) {
        return operations.metadataFileLocation(fileName);
    }

    @Override
    public LocationProvider locationProvider() {
        return operations.locationProvider();
    }

    @Override
    public TableOperations temp(TableMetadata uncommitted) {
        return operations.temp(uncommitted);
    }

    @Override
    public long newSnapshotId() {
        return operations.newSnapshotId();
    }

    @Override
    public boolean requireStrictCleanup() {
        return operations.requireStrictCleanup();
    }
}
