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

/** Reads from data files only the keys, and the topic, partition and offset of the records that the rows come from. */
final class KeyReader {
    private final SparkSession spark;
    private final Table table;
    private final String branch;
    private final List<String> names = new ArrayList<>();
    private final int keys;
    private final KeyHash hash;

    KeyReader(SparkSession spark, Table table, String branch, List<String> keys, List<String> position, KeyHash hash) {
        this.spark = spark;
        this.table = table;
        this.branch = branch;
        this.keys = keys.size();
        this.hash = hash;
        names.addAll(keys);
        names.addAll(position);
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
            KeyHash own = hash.on(rows.schema(), names.subList(0, keys));
            Jobs.run(rows, "key index", rows.queryExecution().toRdd(), new Read(own, keys), KeyEntries.class, take);
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
        private final int topic;

        Read(KeyHash hash, int topic) {
            this.hash = hash;
            this.topic = topic;
        }

        @Override
        public KeyEntries apply(TaskContext task, Iterator<InternalRow> rows) {
            KeyEntries entries = new KeyEntries();
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
                boolean known = !row.isNullAt(topic) && !row.isNullAt(topic + 1) && !row.isNullAt(topic + 2);
                int source = known
                        ? entries.sourceNumber(row.getUTF8String(topic), row.getInt(topic + 1))
                        : KeyEntries.NO_PARTITION;
                int position = Math.toIntExact(row.getLong(topic + 4));
                long offset = known ? row.getLong(topic + 2) : -1;
                entries.add(hash.high(), hash.low(), file, position, source, offset, false);
            }
            return entries.trimmed();
        }
    }
}
