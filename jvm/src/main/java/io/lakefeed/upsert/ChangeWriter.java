package io.lakefeed.upsert;

import io.lakefeed.upsert.KeyEntries.Source;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.RegistryBasedFileWriterFactory;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.io.RollingDataWriter;
import org.apache.spark.TaskContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction2;

/**
 * Writes the newest change of each key in one task to data files, and returns where each key's row is.
 *
 * <p>Rows are held in memory up to {@value #MOST_HELD_BYTES} bytes and then written. If a key occurs again after its
 * row was written, the files have two rows of the key; {@link KeyIndex} deletes the older row.
 */
final class ChangeWriter extends AbstractFunction2<TaskContext, Iterator<InternalRow>, ChangeWriter.Written>
        implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final long MOST_HELD_BYTES = 32 << 20;
    /** The bytes of memory that a held row takes besides its own bytes. */
    private static final long BYTES_BESIDE_A_ROW = 200;

    private final Broadcast<Table> table;
    private final StructType columns;
    private final Map<String, String> properties;
    private final long fileBytes;
    private final String operation;
    private final KeyHash key;
    private final KeyOrder order;
    private final Positions positions;
    private final int deletedColumn;
    private final int lackingColumn;
    private final boolean removes;

    /** The indices of the columns with the topic, partition and offset of a row's record. */
    record Positions(int topic, int partition, int offset) implements Serializable {}

    /** The place of a record in Kafka. */
    record Place(String topic, int partition, long offset) implements Serializable, Comparable<Place> {
        @Override
        public int compareTo(Place other) {
            int order = topic.compareTo(other.topic);
            order = order != 0 ? order : Integer.compare(partition, other.partition);
            return order != 0 ? order : Long.compare(offset, other.offset);
        }

        static Place first(Place one, Place other) {
            return one == null || other != null && other.compareTo(one) < 0 ? other : one;
        }

        @Override
        public String toString() {
            return "topic " + topic + ", partition " + partition + ", offset " + offset;
        }
    }

    /**
     * The result of a task.
     *
     * @param changes the number of changes
     * @param withoutKey the place of the first change without a key
     * @param lacksValues whether a change lacks a value that the stored row may have; the task writes no changes from
     *     the first such change on
     */
    record Written(long changes, Place withoutKey, boolean lacksValues, KeyEntries entries, List<DataFile> files)
            implements Serializable {}

    /**
     * Creates the writer of a batch.
     *
     * @param columns the columns of the table's rows, with which each change begins
     * @param deletedColumn the index of the column that says whether a change deletes its row
     * @param lackingColumn the index of the column that says whether a change lacks a value; negative if no change can
     * @param removes whether a change that deletes is written as no row, and not as a row that is marked as deleted
     */
    ChangeWriter(
            Broadcast<Table> table,
            StructType columns,
            Map<String, String> properties,
            long fileBytes,
            String operation,
            KeyHash key,
            KeyOrder order,
            Positions positions,
            int deletedColumn,
            int lackingColumn,
            boolean removes) {
        this.table = table;
        this.columns = columns;
        this.properties = properties;
        this.fileBytes = fileBytes;
        this.operation = operation;
        this.key = key;
        this.order = order;
        this.positions = positions;
        this.deletedColumn = deletedColumn;
        this.lackingColumn = lackingColumn;
        this.removes = removes;
    }

    @Override
    public Written apply(TaskContext task, Iterator<InternalRow> changes) {
        return new Run(task).write(changes);
    }

    /** Creates writers of Spark's rows, because Iceberg's own factory is private to its package. */
    static final class RowWriters extends RegistryBasedFileWriterFactory<InternalRow, StructType> {
        private static final long serialVersionUID = 1L;

        RowWriters(Table table, StructType columns, Map<String, String> properties) {
            super(
                    table,
                    FileFormat.PARQUET,
                    InternalRow.class,
                    table.schema(),
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

    private record Key(long high, int low, int source) {}

    private record Held(InternalRow row, long[] order, long offset) {
        boolean isNewerThan(long[] otherOrder, long otherOffset) {
            int compared = Arrays.compare(order, otherOrder);
            return compared > 0 || compared == 0 && offset > otherOffset;
        }
    }

    private final class Run {
        private final Table target = table.value();
        private final RowWriters writers = new RowWriters(target, columns, properties);
        private final OutputFileFactory files;
        private final Map<PartitionKey, RollingDataWriter<InternalRow>> open = new HashMap<>();
        private final Map<Key, Held> held = new LinkedHashMap<>();
        private final KeyEntries entries = new KeyEntries(order.width());
        private final PartitionKey partition = new PartitionKey(target.spec(), target.schema());
        private final RowValues values = new RowValues(target.schema().asStruct(), columns);
        private long heldBytes;
        private long count;
        private Place withoutKey;
        private boolean lacksValues;

        Run(TaskContext task) {
            files = OutputFileFactory.builderFor(target, task.partitionId(), task.taskAttemptId())
                    .format(FileFormat.PARQUET)
                    .operationId(operation)
                    .build();
        }

        Written write(Iterator<InternalRow> changes) {
            boolean done = false;
            try {
                while (changes.hasNext()) {
                    hold(changes.next());
                }
                flush();
                List<DataFile> written = close();
                done = true;
                return new Written(count, withoutKey, lacksValues, entries.trimmed(), written);
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            } finally {
                if (!done) {
                    abort();
                }
            }
        }

        private void hold(InternalRow change) {
            count++;
            // After such a change nothing is written, but the other changes are still read, because reading them counts
            // their records.
            lacksValues |= lackingColumn >= 0 && change.getBoolean(lackingColumn);
            if (lacksValues) {
                return;
            }
            int source = entries.sourceNumber(change.getUTF8String(positions.topic()), change.getInt(positions.partition()));
            long offset = change.getLong(positions.offset());
            if (key.lacksKey(change)) {
                Source at = entries.sources.get(source);
                withoutKey = Place.first(withoutKey, new Place(at.topic(), at.partition(), offset));
                return;
            }
            key.hash(change);
            Key of = new Key(key.high(), key.low(), source);
            Held before = held.get(of);
            long[] inOrder = order.of(change);
            if (before != null && before.isNewerThan(inOrder, offset)) {
                return;
            }
            InternalRow row = change.copy();
            held.put(of, new Held(row, inOrder, offset));
            heldBytes += bytes(row) - (before == null ? 0 : bytes(before.row()));
            if (heldBytes > MOST_HELD_BYTES) {
                flush();
            }
        }

        private static long bytes(InternalRow row) {
            return BYTES_BESIDE_A_ROW + (row instanceof UnsafeRow unsafe ? unsafe.getSizeInBytes() : 1024);
        }

        private void flush() {
            held.forEach((of, change) -> {
                boolean deletes = change.row().getBoolean(deletedColumn);
                int file = KeyEntries.NO_ROW;
                int at = 0;
                if (!deletes || !removes) {
                    RollingDataWriter<InternalRow> writer = writer(change.row());
                    file = entries.fileNumber(writer.currentFilePath().toString());
                    at = Math.toIntExact(writer.currentFileRows());
                    writer.write(change.row());
                }
                entries.add(of.high(), of.low(), file, at, of.source(), change.order(), change.offset(), deletes);
            });
            held.clear();
            heldBytes = 0;
        }

        private RollingDataWriter<InternalRow> writer(InternalRow row) {
            if (target.spec().isUnpartitioned()) {
                return open.computeIfAbsent(
                        partition, none -> new RollingDataWriter<>(writers, files, target.io(), fileBytes, target.spec(), null));
            }
            partition.partition(values.of(row));
            RollingDataWriter<InternalRow> writer = open.get(partition);
            if (writer == null) {
                PartitionKey own = partition.copy();
                writer = new RollingDataWriter<>(writers, files, target.io(), fileBytes, target.spec(), own);
                open.put(own, writer);
            }
            return writer;
        }

        private List<DataFile> close() throws IOException {
            List<DataFile> written = new ArrayList<>();
            for (RollingDataWriter<InternalRow> writer : open.values()) {
                writer.close();
                written.addAll(writer.result().dataFiles());
            }
            return written;
        }

        private void abort() {
            for (RollingDataWriter<InternalRow> writer : open.values()) {
                try {
                    writer.close();
                    writer.result().dataFiles().forEach(file -> target.io().deleteFile(file.location()));
                } catch (IOException | RuntimeException alsoFailed) {
                    // The task fails with its first error, not with this one; upkeep removes the files that stay.
                    continue;
                }
            }
        }
    }
}
