package io.lakefeed.upsert;

import io.lakefeed.commit.FeedLedger;
import io.lakefeed.kafka.UncopiedRows;
import io.lakefeed.upsert.ChangeWriter.Place;
import io.lakefeed.upsert.ChangeWriter.Positions;
import io.lakefeed.upsert.ChangeWriter.Written;
import io.lakefeed.upsert.KeyEntries.Source;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.Table;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.shaded.org.roaringbitmap.RoaringBitmap;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.spark.SparkWriteConf;
import org.apache.iceberg.spark.source.SerializableTableWithSize;
import org.apache.iceberg.util.Tasks;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;

/**
 * One batch of changes, from its first data file to its commit.
 *
 * <p>A key can have several entries in a batch, because a task writes its collected rows whenever they become too many,
 * and because several tasks can read one partition of a topic. The newest entry counts.
 */
final class IndexedBatch {
    /** The prefix of Spark's names for the counts of a MERGE in the snapshot's summary. */
    private static final String MERGED = "spark.merge-into.num-target-rows-";

    /** The average number of keys that a commit reads to compare one replaced row with the index. */
    private static final long SAMPLED_KEYS = 200_000;

    final KeyIndex index;
    private final KeyPlaces places;
    final SparkSession spark;
    final Table into;
    private final StructType rows;
    private final boolean removes;
    private final boolean rewrites;
    final TaskFiles.Target target;
    private final List<Written> written = new ArrayList<>();

    /** The newest entry of each key: "file" is the task's number, "position" the entry's index in the task. */
    private final KeyTable newest = new KeyTable(0);

    Map<IndexedFile, RoaringBitmap> replaced;
    private Map<String, IndexedFile> own;
    /** The data files of this batch that have no remaining row, which the commit leaves out. */
    private List<IndexedFile> empty;
    private Place moved;
    /** A replaced row, drawn at random, which is compared with the index. */
    private IndexedFile.Row sample;

    private long drawn;
    private long keys;
    private long deletes;
    private long inserted;
    private long updated;
    private long deleted;

    /** Writes the changes as data files; see {@link KeyIndex#write}. */
    IndexedBatch(
            KeyIndex index,
            Table into,
            Dataset<Row> changes,
            String deletedColumn,
            String lackingColumn,
            boolean removes,
            int tasks) {
        this.index = index;
        places = index.places;
        spark = changes.sparkSession();
        this.into = into;
        this.removes = removes;
        rows = changes.schema();
        rewrites = Indexable.isCopyOnWrite(into);
        SparkWriteConf settings = new SparkWriteConf(spark, into);
        target = new TaskFiles.Target(
                JavaSparkContext.fromSparkContext(spark.sparkContext())
                        .broadcast(SerializableTableWithSize.copyOf(into)),
                into.schema(),
                SparkSchemaUtil.convert(into.schema()),
                settings.writeProperties(),
                settings.targetDataFileSize(),
                UUID.randomUUID().toString());
        int[] position = index.position.stream().mapToInt(rows::fieldIndex).toArray();
        Positions at = new Positions(position[0], position[1], position[2]);
        ChangeWriter writer = new ChangeWriter(
                target,
                rows,
                index.hash,
                new KeyOrder(rows, index.orderBy),
                at,
                rows.fieldIndex(deletedColumn),
                lackingColumn == null ? -1 : rows.fieldIndex(lackingColumn),
                removes);
        // Set this before the job runs: abort() then deletes the files of a job that fails half-way, too.
        index.batch = this;
        RDD<InternalRow> read = UncopiedRows.of(changes);
        RDD<InternalRow> grouped = read.getNumPartitions() <= tasks
                ? read
                : read.toJavaRDD().coalesce(tasks).rdd();
        Jobs.run(changes, "upsert", grouped, writer, Written.class, written::add);
    }

    /** Finds the newest change of each key, and the table's rows that these changes replace or delete. */
    void resolve() {
        replaced = new LinkedHashMap<>();
        own = new LinkedHashMap<>();
        newest.clear();
        moved = null;
        sample = null;
        drawn = 0;
        deletes = 0;
        inserted = 0;
        updated = 0;
        deleted = 0;
        for (Written each : written) {
            each.files().forEach(file -> own.put(file.location(), new IndexedFile(file, List.of())));
        }
        for (int task = 0; task < written.size(); task++) {
            KeyEntries entries = written.get(task).entries();
            for (int at = 0; at < entries.size; at++) {
                compare(task, at);
            }
        }
        keys = newest.size();
        for (int task = 0; task < written.size(); task++) {
            KeyEntries entries = written.get(task).entries();
            int[] ofSource = places.numbers(entries);
            for (int at = 0; at < entries.size; at++) {
                if (isNewest(task, at)) {
                    replace(entries, at, ofSource[entries.source.get(at)]);
                }
            }
        }
        empty = own.values().stream()
                .filter(file -> replaced.containsKey(file)
                        && replaced.get(file).getLongCardinality() == file.file().recordCount())
                .toList();
        empty.forEach(replaced::remove);
    }

    boolean lacksValues() {
        return written.stream().anyMatch(Written::lacksValues);
    }

    /** Returns whether the table has a row of one of these records, or of a later record of the same partition. */
    private boolean readsAgain() {
        return written.stream().map(Written::entries).anyMatch(entries -> {
            int[] ofSource = places.numbers(entries);
            return IntStream.range(0, entries.size)
                    .anyMatch(at -> entries.offset[at] <= places.greatest.get(ofSource[entries.source.get(at)]));
        });
    }

    private boolean isNewest(int task, int at) {
        KeyEntries entries = written.get(task).entries();
        return newest.find(entries.high[at], entries.low.get(at)) && newest.file() == task && newest.position() == at;
    }

    /** Stores the newer of an entry and the key's newest entry so far, and deletes the row of the older one. */
    private void compare(int task, int at) {
        KeyEntries entries = written.get(task).entries();
        if (!newest.find(entries.high[at], entries.low.get(at))) {
            newest.put(entries.high[at], entries.low.get(at), task, at, 0);
            return;
        }
        int otherTask = newest.file();
        int otherAt = newest.position();
        KeyEntries others = written.get(otherTask).entries();
        if (!isOrdered() && !source(others, otherAt).equals(source(entries, at))) {
            moved = Place.first(moved, Place.first(place(entries, at), place(others, otherAt)));
        }
        if (isNewer(entries, at, others, otherAt)) {
            newest.put(entries.high[at], entries.low.get(at), task, at, 0);
            gone(others, otherAt);
        } else {
            gone(entries, at);
        }
    }

    private boolean isOrdered() {
        return !index.orderBy.isEmpty();
    }

    private static Source source(KeyEntries entries, int at) {
        return entries.sources.get(entries.source.get(at));
    }

    private static boolean isNewer(KeyEntries entries, int at, KeyEntries others, int otherAt) {
        int width = entries.width;
        int compared = Arrays.compare(
                entries.order, at * width, at * width + width, others.order, otherAt * width, otherAt * width + width);
        if (compared == 0 && width > 0) {
            compared = source(entries, at).compareTo(source(others, otherAt));
        }
        return compared > 0 || compared == 0 && entries.offset[at] > others.offset[otherAt];
    }

    /** Returns whether an entry is newer than the table's row of its key. */
    private boolean isNewerThanRow(KeyEntries entries, int at) {
        int compared = places.table.compare(entries, at);
        int stored = places.table.partition();
        if (compared == 0 && isOrdered() && stored != KeyEntries.NO_PARTITION) {
            compared = source(entries, at).compareTo(places.sources.get(stored));
        }
        // Within a partition, all offsets of the batch are higher than those of the table's rows.
        return compared >= 0;
    }

    private void gone(KeyEntries entries, int at) {
        if (entries.file.get(at) != KeyEntries.NO_ROW) {
            IndexedFile file = own.get(entries.files.get(entries.file.get(at)));
            replaced.computeIfAbsent(file, none -> new RoaringBitmap()).add(entries.position[at]);
        }
    }

    private Place place(KeyEntries entries, int at) {
        Source source = source(entries, at);
        return new Place(source.topic(), source.partition(), entries.offset[at]);
    }

    private void replace(KeyEntries entries, int at, int source) {
        boolean hasRow = entries.file.get(at) != KeyEntries.NO_ROW;
        deletes += entries.deleted.get(at);
        if (!places.table.find(entries.high[at], entries.low.get(at))) {
            inserted += hasRow ? 1 : 0;
            return;
        }
        if (!isOrdered() && places.table.partition() >= 0 && places.table.partition() != source) {
            moved = Place.first(moved, place(entries, at));
        }
        IndexedFile file = places.files.get(places.table.file());
        int row = places.table.position();
        if (file == null || row >= file.file().recordCount()) {
            throw index.doubtful("a key has its row in a file that is not in the table, or behind its end");
        }
        if (ThreadLocalRandom.current().nextLong(++drawn) == 0) {
            sample = new IndexedFile.Row(file, row, entries.high[at], entries.low.get(at), places.table.order());
        }
        if (!isNewerThanRow(entries, at)) {
            newest.remove(entries.high[at], entries.low.get(at));
            gone(entries, at);
            return;
        }
        replaced.computeIfAbsent(file, none -> new RoaringBitmap()).add(row);
        updated += hasRow ? 1 : 0;
        deleted += hasRow ? 0 : 1;
    }

    KeyIndex.Summary summary() {
        long changes = 0;
        Place withoutKey = null;
        for (Written each : written) {
            changes += each.changes();
            withoutKey = Place.first(withoutKey, each.withoutKey());
        }
        return new KeyIndex.Summary(changes, keys, deletes, text(withoutKey), text(moved));
    }

    private static String text(Place place) {
        return place == null ? null : place.toString();
    }

    long commit(Map<String, String> summary) {
        if (!index.ready) {
            // The last attempt to commit met another writer's commit: bring the index up to date.
            into.refresh();
            index.bring(spark, into, rows);
            resolve();
            if (moved != null || readsAgain()) {
                throw new NotIndexed("another writer has landed the same records");
            }
        }
        boolean changes = !replaced.isEmpty() || empty.size() < own.size();
        index.ready = false;
        Removal removal = null;
        if (changes) {
            removal = land(summary);
        } else {
            require(sampleIsRight());
        }
        index.commitId = summary.get(FeedLedger.COMMIT_ID);
        index.batch = null;
        apply();
        index.ready = (removal == null || removal.apply()) && !index.isTooLarge();
        List<IndexedFile> kept = added().toList();
        Tasks.foreach(own.values().stream().filter(each -> !kept.contains(each)).toList())
                .suppressFailureWhenFinished()
                .run(each -> into.io().deleteFile(each.file().location()));
        return inserted + updated + deleted;
    }

    /** Returns the data files of this batch that the commit adds unchanged. */
    Stream<IndexedFile> added() {
        return own.values().stream().filter(file -> !empty.contains(file) && !(rewrites && replaced.containsKey(file)));
    }

    boolean isOwn(IndexedFile file) {
        return own.containsKey(file.file().location());
    }

    /** For some batches, at random, reads a replaced row; returns false if it differs from the index. */
    boolean sampleIsRight() {
        return sample == null
                || ThreadLocalRandom.current().nextLong(sample.of().file().recordCount()) >= SAMPLED_KEYS
                || sample.isAsIn(index, into);
    }

    void require(boolean isSampleRight) {
        if (!isSampleRight) {
            throw index.doubtful("the row of a key has another key or another value of order_by");
        }
    }

    private Removal land(Map<String, String> summary) {
        Removal removal = rewrites ? new RewrittenFiles(this) : new DeletedPositions(this);
        SnapshotUpdate<?> update = removal.prepare();
        update.toBranch(index.branch);
        summary.forEach(update::set);
        update.set(MERGED + "inserted", String.valueOf(inserted));
        update.set(MERGED + "updated", String.valueOf(updated));
        update.set(MERGED + "deleted", String.valueOf(deleted));
        try {
            update.commit();
        } catch (CommitStateUnknownException unknown) {
            // The commit may have succeeded: abort() must not delete the data files.
            index.batch = null;
            throw unknown;
        } catch (RuntimeException refused) {
            removal.discard();
            throw refused;
        }
        return removal;
    }

    /** Updates the index to the table after this batch. */
    private void apply() {
        for (int task = 0; task < written.size(); task++) {
            KeyEntries entries = written.get(task).entries();
            int[] ofSource = places.numbers(entries);
            int[] ofFile = entries.files.stream().mapToInt(this::number).toArray();
            places.see(entries, ofSource);
            for (int at = 0; at < entries.size; at++) {
                if (!isNewest(task, at)) {
                    continue;
                }
                if (entries.file.get(at) != KeyEntries.NO_ROW) {
                    places.place(entries, at, ofFile[entries.file.get(at)], ofSource[entries.source.get(at)]);
                } else if (places.table.find(entries.high[at], entries.low.get(at))) {
                    places.files.get(places.table.file()).live--;
                    places.table.remove(entries.high[at], entries.low.get(at));
                }
            }
        }
    }

    private int number(String location) {
        Integer known = places.number(location);
        return known != null ? known : places.add(own.get(location));
    }

    void abort() {
        for (Written each : written) {
            for (DataFile file : each.files()) {
                into.io().deleteFile(file.location());
            }
        }
    }
}
