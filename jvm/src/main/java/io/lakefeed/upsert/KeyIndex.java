package io.lakefeed.upsert;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.lakefeed.commit.FeedLedger;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.iceberg.DataOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.SnapshotSummary;
import org.apache.iceberg.Table;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;

/**
 * An index of a table's rows by their keys, in the driver's memory: a batch of changes is committed without a read.
 *
 * <p>The index describes one snapshot of the table. It is filled by reading the table's key columns, and updated by its
 * own commits and by commits that only rewrite files. After any other commit it is filled again. A commit fails if
 * another commit came in between, so an outdated index costs only time. A table in which a key has two rows is not
 * indexed.
 *
 * <p>If columns order the changes of a key, the index has the values of these columns in the key's row. If the values
 * of two changes are equal, their partitions decide. Within a partition, the batch's change is newer than the table's
 * row, because repeated offsets are left to a MERGE.
 *
 * <p>A batch has four steps. Tasks write the newest changes as data files and return where each key's row is. The
 * driver looks up the rows that these changes replace, and writes their positions as delete files; with copy-on-write,
 * tasks instead write the files with these rows again. One commit adds the new files, and removes the files that they
 * replace.
 */
public final class KeyIndex {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int MOST_SNAPSHOTS = 100;
    /** After this many consecutive batches that read all keys, or were not committed, batches use a MERGE. */
    private static final int MOST_USELESS = 3;
    private static final int BATCHES_OF_REST = 20;
    private static final String LACKING = "changes lack values, which stay as they are stored";
    private static final Set<KeyIndex> SHARING = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

    final List<String> keys;
    /** The columns that order the changes of a key; if there are none, the offsets order them. */
    final List<String> orderBy;
    final List<String> position;
    final String branch;
    private final long mostBytes;
    final KeyPlaces places;
    KeyHash hash;
    private KeyOrder order;
    /** The snapshot that the index describes; null for an empty table. */
    Long snapshot;
    /** The id of the commit that made this snapshot, if this index made the commit; otherwise null. */
    String commitId;

    boolean ready;
    private int filled;
    /** The number of consecutive batches that had to fill the index again. */
    private int fills;
    /** The number of consecutive batches in which a change lacked a value. */
    private int lacking;
    /** The number of batches that use a MERGE before the index is tried again; {@link #restsBecause} says why. */
    private int rest;
    private String restsBecause;
    private String refused;
    private String note;
    /** The rows by the snapshot's summary minus the keys in the index; not 0 if it counts positions twice. */
    long surplus;

    /** The memory that this index takes. The other indexes read it, because all indexes share one limit. */
    private volatile long bytes;

    /** The batch that is being written; null between two batches. */
    IndexedBatch batch;

    /**
     * Creates the index of a table; nothing is read yet.
     *
     * @param keys the columns that identify a row
     * @param orderBy the columns that order the changes of a key; empty if the records' offsets do
     * @param position the columns with the topic, partition and offset of a row's record
     * @param branch the branch to commit to; null for the main branch
     * @param mostBytes the most bytes of memory; if negative, the indexes together take at most a quarter of this JVM's
     * memory
     */
    public KeyIndex(List<String> keys, List<String> orderBy, List<String> position, String branch, long mostBytes) {
        this.keys = List.copyOf(keys);
        this.orderBy = List.copyOf(orderBy);
        places = new KeyPlaces(orderBy.size(), this::requireRoom);
        this.position = List.copyOf(position);
        this.branch = branch == null ? SnapshotRef.MAIN_BRANCH : branch;
        this.mostBytes = mostBytes;
        if (mostBytes < 0) {
            SHARING.add(this);
        }
    }

    private long mostBytes() {
        if (mostBytes >= 0) {
            return mostBytes;
        }
        long others = 0;
        synchronized (SHARING) {
            for (KeyIndex each : SHARING) {
                others += each == this ? 0 : each.bytes;
            }
        }
        return Runtime.getRuntime().maxMemory() / 4 - others;
    }

    /** Empties an index that takes too much memory; returns whether it did. */
    boolean isTooLarge() {
        bytes = places.table.bytes();
        if (bytes <= mostBytes()) {
            return false;
        }
        forget();
        return true;
    }

    /** Returns why upserts into a table need Spark's MERGE; null if the table can be indexed. */
    public String refusal(Table of) {
        return Indexable.refusal(of, keys, orderBy);
    }

    /** Returns why upserts into a new table with these columns, as JSON, need Spark's MERGE; null if they do not. */
    public String refusal(String columns) {
        return Indexable.refusal((StructType) StructType.fromJson(columns), keys, orderBy);
    }

    /** The counts of a batch, for Python: see {@code Upserts} in {@code lakefeed.ledger.snapshot_summary}. */
    public record Summary(long changes, long keys, long deletes, String withoutKey, String moved) {}

    /**
     * Reads the keys of the table, unless the index has them.
     *
     * @param starts the offsets at which the batch begins, as a JSON object: topic, partition, offset
     * @return why the batch needs a MERGE; null if {@link #write} can write the batch
     */
    public String begin(Dataset<Row> changes, Table into, String starts) throws JsonProcessingException {
        if (refused != null) {
            return refused;
        }
        if (rest > 0) {
            rest--;
            return restsBecause;
        }
        try {
            int before = filled;
            Indexable.requireColumns(into, changes.schema(), keys);
            bring(changes.sparkSession(), into, changes.schema());
            fills = filled == before ? 0 : fills + 1;
            if (fills == MOST_USELESS) {
                fills = 0;
                rest("another writer commits to the table between the batches");
            }
        } catch (NotIndexed why) {
            forget();
            // Remember the refusal: otherwise each further batch would read the table's keys to be refused again.
            refused = why.getMessage();
            note = "each batch is a MERGE, which reads the table's keys: " + refused;
            return refused;
        }
        return places.haveRecordsFrom(JSON.readTree(starts)) ? "the batch reads records again" : null;
    }

    /**
     * Writes a batch's changes as data files, and looks up the rows that the changes replace.
     *
     * @param changes the changes, with the columns of the table, followed by {@code deleted} if the table has no such
     *     column
     * @param lacking the column that is true if a change lacks values; null if no change can lack one
     * @param removes whether a deleting change removes the row, instead of marking it
     * @param tasks the most tasks that write
     * @return a {@link Summary} as JSON; null if the batch needs a MERGE
     */
    public String write(
            Dataset<Row> changes, Table into, String deleted, String lacking, boolean removes, int tasks)
            throws JsonProcessingException {
        batch = new IndexedBatch(this, into, changes, deleted, lacking, removes, tasks);
        this.lacking = batch.lacksValues() ? this.lacking + 1 : 0;
        if (this.lacking == MOST_USELESS) {
            this.lacking = 0;
            rest(LACKING);
        }
        if (batch.lacksValues()) {
            return null;
        }
        try {
            batch.resolve();
        } catch (NotIndexed doubtful) {
            return null;
        }
        return JSON.writeValueAsString(batch.summary());
    }

    /**
     * Commits the written batch; after a conflict, may be called again.
     *
     * @param properties the properties of the snapshot's summary
     * @return the number of rows of the table that were inserted, changed or deleted; null if the batch needs a MERGE,
     *     because another writer has committed the same records or the index is wrong
     */
    public Long commit(Map<String, String> properties) {
        try {
            return batch.commit(properties);
        } catch (NotIndexed refusal) {
            return null;
        }
    }

    public void abort() {
        if (batch != null) {
            batch.abort();
            batch = null;
        }
    }

    public int size() {
        return places.table.size();
    }

    /** Returns, once, the reason why the table has no index, or the index was wrong; otherwise null. */
    public String takeNote() {
        String taken = note;
        note = null;
        return taken;
    }

    /** Drops a wrong index, and records that keys committed with it may have two rows. */
    NotIndexed doubtful(String why) {
        note = "the index of its keys was wrong and is filled again (" + why
                + "); lakefeed verify --deep finds keys with two rows";
        forget();
        return new NotIndexed(why);
    }

    /** Returns how many times the index was filled from the keys of all files. */
    public int filled() {
        return filled;
    }

    private void rest(String because) {
        rest = BATCHES_OF_REST;
        restsBecause = because;
    }

    private void forget() {
        ready = false;
        bytes = 0;
        places.clear();
    }

    /** Brings the index up to date with the table's newest snapshot. */
    void bring(SparkSession spark, Table into, StructType columns) {
        KeyHash own = hash == null ? KeyHash.of(columns, keys) : hash.on(columns, keys);
        KeyOrder ordered = new KeyOrder(columns, orderBy);
        boolean same = hash != null && own.hasTypesOf(hash) && ordered.hasTypesOf(order);
        hash = own;
        order = ordered;
        Snapshot head = into.snapshot(branch);
        long rows = Indexable.rows(head);
        boolean current = ready && same && describes(head);
        if (current && rows - size() != surplus) {
            doubtful("the table has " + (rows - surplus) + " rows by its summary, and the index " + size() + " keys");
            current = false;
        }
        if (!current) {
            boolean follows = ready && same && head != null;
            ready = false;
            KeyReader reader = new KeyReader(spark, into, this);
            if (!follows || !follow(reader, into, head)) {
                fill(reader, head);
            }
            surplus = rows - size();
        }
        snapshot = head == null ? null : Long.valueOf(head.snapshotId());
        commitId = null;
        ready = true;
    }

    /**
     * Returns whether the index describes this snapshot. The snapshot of the index's own commit is recognised by its
     * commit id, because the snapshot's id is not known before the commit.
     */
    private boolean describes(Snapshot each) {
        if (commitId != null) {
            return each != null && commitId.equals(each.summary().get(FeedLedger.COMMIT_ID));
        }
        return each == null ? snapshot == null : snapshot != null && each.snapshotId() == snapshot;
    }

    private void fill(KeyReader reader, Snapshot head) {
        forget();
        if (head == null) {
            return;
        }
        filled++;
        requireRoom(head);
        places.fill(reader, Indexable.rows(head));
    }

    /** Refuses a table with too many keys for the memory, before its keys are read. */
    private void requireRoom(Snapshot head) {
        if (Indexable.rows(head) * places.table.bytesOfSlot() > mostBytes()) {
            throw tooLarge(mostBytes());
        }
    }

    private void requireRoom() {
        long most = mostBytes();
        if (isTooLarge()) {
            throw tooLarge(most);
        }
    }

    private static NotIndexed tooLarge(long most) {
        return new NotIndexed("the index of its keys would need more than " + most / 1_000_000 + " MB");
    }

    /** Updates the index for commits that only rewrote files; returns false if the new files have other rows. */
    private boolean follow(KeyReader reader, Table into, Snapshot head) {
        Snapshot each = head;
        for (int seen = 0; !describes(each); seen++) {
            if (each == null || seen == MOST_SNAPSHOTS || !keepsRows(each)) {
                return false;
            }
            each = each.parentId() == null ? null : into.snapshot(each.parentId());
        }
        return places.follow(reader);
    }

    /** Returns whether a commit leaves the table's rows unchanged, as commits of upkeep do. */
    private static boolean keepsRows(Snapshot commit) {
        return commit.operation().equals(DataOperations.REPLACE)
                || commit.operation().equals(DataOperations.APPEND)
                        && !commit.summary().containsKey(SnapshotSummary.ADDED_FILES_PROP);
    }
}
