package io.lakefeed.upsert;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.Table;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.util.Tasks;
import org.apache.iceberg.util.ThreadPools;

/** Merge-on-read: the positions of replaced rows become delete files, or deletion vectors in format version 3. */
final class DeletedPositions implements Removal {
    private static final ExecutorService THREADS = ThreadPools.newFixedThreadPool("lakefeed-deletes", 8);

    private final IndexedBatch batch;
    private final Table into;
    private final List<IndexedFile.Deletes> written = Collections.synchronizedList(new ArrayList<>());

    DeletedPositions(IndexedBatch batch) {
        this.batch = batch;
        into = batch.into;
    }

    @Override
    public SnapshotUpdate<?> prepare() {
        write();
        RowDelta delta = into.newRowDelta();
        batch.added().forEach(each -> delta.addRows(each.file()));
        for (IndexedFile.Deletes each : written) {
            delta.addDeletes(each.added());
            each.removed().forEach(delta::removeDeletes);
        }
        if (batch.index.snapshot != null) {
            delta.validateFromSnapshot(batch.index.snapshot);
        }
        return delta.conflictDetectionFilter(Expressions.alwaysTrue())
                .validateDataFilesExist(batch.replaced.keySet().stream()
                        .filter(file -> !batch.isOwn(file))
                        .map(file -> file.file().location())
                        .toList())
                .validateDeletedFiles()
                .validateNoConflictingDataFiles()
                .validateNoConflictingDeleteFiles();
    }

    private void write() {
        boolean asVectors = Indexable.formatVersion(into) > 2;
        OutputFileFactory factory = OutputFileFactory.builderFor(into, 0, 0)
                .format(asVectors ? FileFormat.PUFFIN : FileFormat.PARQUET)
                .operationId(UUID.randomUUID().toString())
                .suffix("deletes")
                .build();
        TaskFiles.RowWriters writers = new TaskFiles.RowWriters(into, into.schema(), batch.target.columns(), batch.target.properties());
        List<Runnable> work = new ArrayList<>();
        boolean[] isSampleRight = {true};
        work.add(() -> isSampleRight[0] = batch.sampleIsRight());
        batch.replaced.forEach((file, positions) -> work.add(
                asVectors ? () -> file.deleted(into) : () -> written.add(file.write(into, positions, factory, writers))));
        try {
            Tasks.foreach(work)
                    .executeWith(THREADS)
                    .stopOnFailure()
                    .throwFailureWhenFinished()
                    .run(Runnable::run);
            if (asVectors && !batch.replaced.isEmpty()) {
                written.addAll(IndexedFile.writeVectors(into, batch.replaced, factory));
            }
            if (written.stream().anyMatch(IndexedFile.Deletes::isDoubled)) {
                throw batch.index.doubtful("the row of a key is deleted");
            }
            batch.require(isSampleRight[0]);
        } catch (RuntimeException failed) {
            discard();
            throw failed;
        }
    }

    @Override
    public void discard() {
        written.stream().map(each -> each.added().location()).distinct().forEach(into.io()::deleteFile);
    }

    @Override
    public boolean apply() {
        written.forEach(IndexedFile.Deletes::apply);
        // The snapshot's summary subtracts the repeated positions twice, so it shows too few rows.
        batch.index.surplus -= written.stream().mapToLong(IndexedFile.Deletes::repeated).sum();
        return true;
    }
}
