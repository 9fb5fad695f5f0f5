package io.lakefeed.upsert;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.RegistryBasedFileWriterFactory;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.io.RollingDataWriter;
import org.apache.iceberg.util.Tasks;
import org.apache.spark.TaskContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/** The data files that a task writes: one open file for each partition of the table. */
final class TaskFiles {
    private final Table table;
    private final long fileBytes;
    private final RowWriters writers;
    private final OutputFileFactory files;
    private final Map<PartitionKey, RollingDataWriter<InternalRow>> open = new HashMap<>();
    private final List<DataFile> written = new ArrayList<>();
    private final PartitionKey partition;
    private final RowValues values;

    /**
     * The table that tasks write to, and the columns of the files.
     *
     * @param schema the columns of the files
     * @param columns the same columns in Spark's types; they are the first columns of each row
     */
    record Target(
            Broadcast<Table> table,
            Schema schema,
            StructType columns,
            Map<String, String> properties,
            long fileBytes,
            String operation)
            implements Serializable {}

    /** Creates writers of Spark's rows; Iceberg's own factory is private to its package. */
    static final class RowWriters extends RegistryBasedFileWriterFactory<InternalRow, StructType> {
        private static final long serialVersionUID = 1L;

        RowWriters(Table table, Schema schema, StructType columns, Map<String, String> properties) {
            super(
                    table,
                    FileFormat.PARQUET,
                    InternalRow.class,
                    schema,
                    null,
                    FileFormat.PARQUET,
                    null,
                    null,
                    null,
                    properties,
                    columns,
                    null);
        }
    }

    /** Writes the files of a task. */
    interface Work<R> {
        R to(TaskFiles files) throws IOException;
    }

    /** Returns the result of a task's work; if the work fails, deletes the task's files. */
    static <R> R write(Target target, TaskContext task, Work<R> work) {
        TaskFiles files = new TaskFiles(target, task);
        boolean done = false;
        try {
            R written = work.to(files);
            done = true;
            return written;
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        } finally {
            if (!done) {
                files.abort();
            }
        }
    }

    private TaskFiles(Target target, TaskContext task) {
        table = target.table().value();
        fileBytes = target.fileBytes();
        writers = new RowWriters(table, target.schema(), target.columns(), target.properties());
        files = OutputFileFactory.builderFor(table, task.partitionId(), task.taskAttemptId())
                .format(FileFormat.PARQUET)
                .operationId(target.operation())
                .build();
        partition = new PartitionKey(table.spec(), table.schema());
        values = new RowValues(table.schema().asStruct(), target.columns());
    }

    /** Returns the writer of the file to which a row belongs. */
    RollingDataWriter<InternalRow> writer(InternalRow row) {
        if (table.spec().isUnpartitioned()) {
            return open.computeIfAbsent(
                    partition, none -> new RollingDataWriter<>(writers, files, table.io(), fileBytes, table.spec(), null));
        }
        partition.partition(values.of(row));
        RollingDataWriter<InternalRow> writer = open.get(partition);
        if (writer == null) {
            PartitionKey own = partition.copy();
            writer = new RollingDataWriter<>(writers, files, table.io(), fileBytes, table.spec(), own);
            open.put(own, writer);
        }
        return writer;
    }

    /** Closes the open files, and returns all files; further rows go to new files. */
    List<DataFile> close() throws IOException {
        for (RollingDataWriter<InternalRow> writer : open.values()) {
            writer.close();
            written.addAll(writer.result().dataFiles());
        }
        open.clear();
        return written;
    }

    /** Deletes the files of a task that fails. */
    private void abort() {
        for (RollingDataWriter<InternalRow> writer : open.values()) {
            try {
                writer.close();
                written.addAll(writer.result().dataFiles());
            } catch (IOException | RuntimeException alsoFailed) {
                // The task already fails with its first error, not with this one; upkeep removes the remaining files.
                continue;
            }
        }
        Tasks.foreach(written).suppressFailureWhenFinished().run(file -> table.io().deleteFile(file.location()));
    }
}
