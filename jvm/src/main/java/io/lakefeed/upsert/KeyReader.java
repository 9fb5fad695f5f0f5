package io.lakefeed.upsert;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.function.Consumer;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.MetadataColumns;
import org.apache.iceberg.Table;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.source.SparkRewriteTable;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
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
        if (files.isEmpty()) {
            return;
        }
        String group = UUID.randomUUID().toString();
        ScanTaskSetManager.get().stageTasks(table, group, files);
        try {
            // Makes Spark read exactly these files, as Iceberg does for a compaction.
            Dataset<Row> all = Dataset.ofRows(
                    spark,
                    DataSourceV2Relation.create(
                            new Staged(table, group),
                            Option.empty(),
                            Option.empty(),
                            CaseInsensitiveStringMap.empty(),
                            Option.empty()));
            Column[] columns = names.stream().map(name -> functions.col("`" + name.replace("`", "``") + "`")).toArray(Column[]::new);
            Dataset<Row> rows = all.select(columns);
            KeyHash hash = index.hash.on(rows.schema(), index.keys);
            Read read = new Read(hash, new KeyOrder(rows.schema(), index.orderBy), index.keys.size());
            Jobs.run(rows, "key index", rows.queryExecution().toRdd(), read, KeyEntries.class, take);
        } finally {
            ScanTaskSetManager.get().removeTasks(table, group);
        }
    }

    /**
     * A table that consists of the staged files. The row ids of format version 3 are left out of its columns, because
     * with them Spark finds no metadata columns.
     */
    private static final class Staged extends SparkRewriteTable {
        Staged(Table table, String group) {
            super(table, group);
        }

        @Override
        public org.apache.spark.sql.connector.catalog.Column[] columns() {
            return Arrays.stream(super.columns())
                    .filter(each -> !MetadataColumns.isMetadataColumn(each.name()))
                    .toArray(org.apache.spark.sql.connector.catalog.Column[]::new);
        }
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
