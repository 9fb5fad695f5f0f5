package io.lakefeed.upsert;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.MetadataColumns;
import org.apache.iceberg.Table;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction2;

/**
 * Reads from data files only the keys, the columns that order the changes of a key, and the topic, partition and offset
 * of the records that the rows come from.
 */
final class KeyReader {
    private final SparkSession spark;
    private final Table table;
    private final String branch;
    private final List<String> names = new ArrayList<>();
    private final KeyIndex index;

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

    /** Returns the data files in the branch's newest snapshot, each with its delete files. */
    List<FileScanTask> plan() {
        try (CloseableIterable<FileScanTask> files = table.newScan().useRef(branch).planFiles()) {
            List<FileScanTask> found = new ArrayList<>();
            files.forEach(found::add);
            return found;
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /** Reads files, and passes the keys of each task to {@code take}. */
    void read(List<FileScanTask> files, Consumer<KeyEntries> take) {
        Jobs.run(
                spark,
                table,
                files,
                names,
                "key index",
                rows -> new Read(index.hash.on(rows, index.keys), new KeyOrder(rows, index.orderBy), index.keys.size()),
                KeyEntries.class,
                take);
    }

    private static final class Read extends AbstractFunction2<TaskContext, Iterator<InternalRow>, KeyEntries>
            implements Serializable {
        private static final long serialVersionUID = 1L;
        private final KeyHash hash;
        private final KeyOrder order;
        private final int topic;

        Read(KeyHash hash, KeyOrder order, int keys) {
            this.hash = hash;
            this.order = order;
            topic = keys + order.width();
        }

        @Override
        public KeyEntries apply(TaskContext task, Iterator<InternalRow> rows) {
            KeyEntries entries = new KeyEntries(order.width());
            UTF8String path = null;
            int file = 0;
            while (rows.hasNext()) {
                InternalRow row = rows.next();
                if (hash.lacksKey(row)) {
                    entries.lacksKey = true;
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
                // Without columns that order the changes, a row without an offset is older than any change.
                if (hasOffset || order.width() > 0 && !row.isNullAt(topic)) {
                    int partition = row.isNullAt(topic + 1) ? -1 : row.getInt(topic + 1);
                    source = entries.sourceNumber(row.getUTF8String(topic), partition);
                }
                int position = Math.toIntExact(row.getLong(topic + 4));
                long offset = hasOffset ? row.getLong(topic + 2) : -1;
                entries.add(hash.high(), hash.low(), file, position, source, order.of(row), offset, false);
            }
            return entries.trimmed();
        }
    }
}
