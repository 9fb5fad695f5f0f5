package io.lakefeed.upsert;

import io.lakefeed.upsert.KeyEntries.Key;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.MetadataColumns;
import org.apache.iceberg.Table;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.SparkReadOptions;
import org.apache.iceberg.util.BinPacking;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function2;
import scala.collection.Iterator;

/**
 * Reads from data files only the keys, the columns that order the changes of a key, and the topic, partition and offset
 * of the records that the rows come from.
 */
final class KeyReader {
    /** The most rows that a job reads, because Spark limits the bytes of a job's results. */
    private static final long ROWS_A_JOB = 10_000_000;
    /** The most rows that a task reads, because the task collects their keys in memory. */
    private static final long ROWS_A_TASK = 1_000_000;

    private static final long MOST_BYTES_A_TASK = 128 << 20;
    private static final int ROWS_A_PAGE = 1 << 15;
    /** This driver's readings, by id: tasks in this JVM pass their keys to them page by page, to save memory. */
    private static final Map<String, Consumer<KeyEntries>> HERE = new ConcurrentHashMap<>();

    private final SparkSession spark;
    private final Table table;
    private final String branch;
    private final List<String> names = new ArrayList<>();
    private final KeyIndex index;
    private NotIndexed refused;

    KeyReader(SparkSession spark, Table table, KeyIndex index) {
        this.spark = spark;
        this.table = table;
        branch = index.branch;
        this.index = index;
        names.addAll(index.keys);
        names.addAll(index.orderBy);
        names.addAll(index.position);
        names.add(MetadataColumns.FILE_PATH.name());
        names.add(MetadataColumns.ROW_POSITION.name());
    }

    /** Returns the data files of the branch's newest snapshot, with their delete files. */
    List<FileScanTask> plan() {
        try (CloseableIterable<FileScanTask> files = table.newScan().useRef(branch).planFiles()) {
            List<FileScanTask> found = new ArrayList<>();
            files.forEach(found::add);
            return found;
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /**
     * Reads files, and calls {@code take} with their keys.
     *
     * @throws NotIndexed if {@code take} throws it; then {@code take} is not called again
     */
    void read(List<FileScanTask> files, Consumer<KeyEntries> take) {
        long rows = 1 + files.stream().mapToLong(each -> each.file().recordCount()).sum();
        long bytes = files.stream().mapToLong(each -> each.file().fileSizeInBytes()).sum();
        long split = Math.min(MOST_BYTES_A_TASK, 1 + bytes / rows * ROWS_A_TASK);
        Map<String, String> options = Map.of(SparkReadOptions.SPLIT_SIZE, String.valueOf(split));
        String id = UUID.randomUUID().toString();
        Consumer<KeyEntries> taking = entries -> pass(entries, take);
        HERE.put(id, taking);
        try {
            for (List<FileScanTask> part : new BinPacking.ListPacker<FileScanTask>(ROWS_A_JOB, 1, false)
                    .pack(files, each -> each.file().recordCount())) {
                Jobs.run(spark, table, part, names, options, "key index", of -> task(id, of), KeyEntries.class, taking);
            }
        } finally {
            HERE.remove(id);
        }
        if (refused != null) {
            throw refused;
        }
    }

    private Read task(String id, StructType columns) {
        KeyOrder order = new KeyOrder(columns, index.orderBy);
        return new Read(id, index.hash.on(columns, index.keys), order, index.keys.size() + order.width());
    }

    private synchronized void pass(KeyEntries entries, Consumer<KeyEntries> take) {
        try {
            if (refused == null) {
                take.accept(entries);
            }
        } catch (NotIndexed why) {
            // Throw the refusal after the job: Spark would wrap it in an exception of its own.
            refused = why;
        }
    }

    private record Read(String id, KeyHash hash, KeyOrder order, int topic)
            implements Function2<TaskContext, Iterator<InternalRow>, KeyEntries>, Serializable {
        @Override
        public KeyEntries apply(TaskContext task, Iterator<InternalRow> rows) {
            Consumer<KeyEntries> here = HERE.get(id);
            KeyEntries entries = new KeyEntries(order.width(), false);
            UTF8String path = null;
            int file = 0;
            while (rows.hasNext()) {
                InternalRow row = rows.next();
                if (here != null && entries.size == ROWS_A_PAGE) {
                    here.accept(entries);
                    entries = new KeyEntries(order.width(), false);
                    path = null;
                }
                if (hash.lacksKey(row)) {
                    entries.refusal = "a row of the table has no key";
                    break;
                }
                long[] inOrder = order.of(row);
                if (inOrder == null) {
                    entries.refusal = "a row of the table has -2^63 in a column of order_by";
                    break;
                }
                hash.hash(row);
                UTF8String of = row.getUTF8String(topic + 3);
                if (!of.equals(path)) {
                    path = of.clone();
                    file = entries.fileNumber(of.toString());
                }
                boolean hasOffset = !row.isNullAt(topic) && !row.isNullAt(topic + 1) && !row.isNullAt(topic + 2);
                int source = KeyEntries.NO_PARTITION;
                // If no columns order the changes, a row without an offset is older than any change.
                if (hasOffset || order.width() > 0 && !row.isNullAt(topic)) {
                    int partition = row.isNullAt(topic + 1) ? -1 : row.getInt(topic + 1);
                    source = entries.sourceNumber(row.getUTF8String(topic), partition);
                }
                int position = Math.toIntExact(row.getLong(topic + 4));
                long offset = hasOffset ? row.getLong(topic + 2) : -1;
                entries.add(new Key(hash.high(), hash.low(), source), file, position, inOrder, offset, false);
            }
            return entries.trimmed();
        }
    }
}
