package io.lakefeed.upsert;

import io.lakefeed.upsert.FileRewriter.Rewritten;
import io.lakefeed.upsert.FileRewriter.Stretch;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.MetadataColumns;
import org.apache.iceberg.OverwriteFiles;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.Table;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.ResidualEvaluator;
import org.apache.iceberg.shaded.org.roaringbitmap.RoaringBitmap;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.util.DataFileSet;
import org.apache.iceberg.util.DeleteFileSet;
import org.apache.iceberg.util.Tasks;

/** Copy-on-write: writes the files with replaced rows again, without the replaced rows. */
final class RewrittenFiles implements Removal {
    private final IndexedBatch batch;
    private final KeyIndex index;
    private final Table into;
    private final List<Rewritten> written = new ArrayList<>();

    RewrittenFiles(IndexedBatch batch) {
        this.batch = batch;
        index = batch.index;
        into = batch.into;
    }

    @Override
    public SnapshotUpdate<?> prepare() {
        batch.require(batch.sampleIsRight());
        List<FileScanTask> old = oldFiles();
        try {
            rewrite(old);
        } catch (RuntimeException failed) {
            discard();
            throw failed;
        }
        DataFileSet removed = DataFileSet.create();
        DeleteFileSet deletes = DeleteFileSet.create();
        for (IndexedFile each : batch.replaced.keySet()) {
            if (!batch.isOwn(each)) {
                removed.add(each.file());
                deletes.addAll(each.ownDeletes());
            }
        }
        OverwriteFiles overwrite = into.newOverwrite().deleteFiles(removed, deletes);
        batch.added().forEach(each -> overwrite.addFile(each.file()));
        written.forEach(each -> each.files().forEach(overwrite::addFile));
        if (index.snapshot != null) {
            overwrite.validateFromSnapshot(index.snapshot);
        }
        return overwrite.conflictDetectionFilter(Expressions.alwaysTrue())
                .validateNoConflictingData()
                .validateNoConflictingDeletes();
    }

    /** Returns the files with replaced rows, of which the table knows the row ids. */
    private List<FileScanTask> oldFiles() {
        List<FileScanTask> tasks = new ArrayList<>();
        Map<String, FileScanTask> ofTable = new HashMap<>();
        if (batch.replaced.keySet().stream().anyMatch(each -> !batch.isOwn(each))) {
            new KeyReader(batch.spark, into, index).plan().forEach(task -> ofTable.put(task.file().location(), task));
        }
        for (IndexedFile each : batch.replaced.keySet()) {
            FileScanTask found = batch.isOwn(each) ? task(each) : ofTable.get(each.file().location());
            if (found == null) {
                throw index.doubtful("a key has its row in a file that is not in the table");
            }
            tasks.add(found);
        }
        return tasks;
    }

    private FileScanTask task(IndexedFile own) {
        return new BaseFileScanTask(
                own.file(),
                new DeleteFile[0],
                SchemaParser.toJson(into.schema()),
                PartitionSpecParser.toJson(into.spec()),
                ResidualEvaluator.unpartitioned(Expressions.alwaysTrue()));
    }

    private void rewrite(List<FileScanTask> old) {
        boolean hasRowIds = Indexable.formatVersion(into) > 2;
        Schema schema = hasRowIds ? MetadataColumns.schemaWithRowLineage(into.schema()) : into.schema();
        TaskFiles.Target target = new TaskFiles.Target(
                batch.target.table(),
                schema,
                SparkSchemaUtil.convert(schema),
                batch.target.properties(),
                batch.target.fileBytes(),
                UUID.randomUUID().toString());
        List<String> names = new ArrayList<>(List.of(target.columns().fieldNames()));
        names.add(MetadataColumns.FILE_PATH.name());
        names.add(MetadataColumns.ROW_POSITION.name());
        Map<String, RoaringBitmap> replaced = new HashMap<>();
        batch.replaced.forEach((file, positions) -> replaced.put(file.file().location(), positions));
        FileRewriter rewriter = new FileRewriter(target, replaced, into.sortOrder().isSorted());
        Jobs.run(batch.spark, into, old, names, Map.of(), "upsert", rows -> rewriter, Rewritten.class, written::add);
        long left = written.stream().mapToLong(Rewritten::left).sum();
        if (left != replaced.values().stream().mapToLong(RoaringBitmap::getLongCardinality).sum()) {
            throw index.doubtful("the row of a key is deleted");
        }
    }

    @Override
    public void discard() {
        Tasks.foreach(written.stream().flatMap(each -> each.files().stream()).toList())
                .suppressFailureWhenFinished()
                .run(file -> into.io().deleteFile(file.location()));
    }

    @Override
    public boolean apply() {
        Map<String, NavigableMap<Integer, Stretch>> stretches = new HashMap<>();
        for (Rewritten each : written) {
            each.files().forEach(file -> index.places.add(new IndexedFile(file.copyWithoutStats(), List.of())));
            each.stretches().forEach(stretch ->
                    stretches.computeIfAbsent(stretch.old, none -> new TreeMap<>()).put(stretch.from, stretch));
        }
        for (IndexedFile each : batch.replaced.keySet()) {
            if (!batch.isOwn(each)) {
                // The summary also counts the positions that remain in other data files' delete files.
                index.surplus -= each.deletedWithOthers(each.deleted(into));
            }
        }
        if (!index.places.move(batch.replaced, stretches)) {
            index.doubtful("a key has no row in the files that were rewritten");
            return false;
        }
        return true;
    }
}
