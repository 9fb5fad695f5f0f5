package io.lakefeed.upsert;

import io.lakefeed.upsert.KeyEntries.Key;
import io.lakefeed.upsert.KeyEntries.Source;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.SortOrderComparators;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.io.RollingDataWriter;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InterpretedUnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Function2;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Writes, in one task, the newest change of each key to data files, and returns where each key's row is.
 *
 * <p>Up to {@value #MOST_HELD_BYTES} bytes of rows are collected in memory, and then written. If a key occurs again
 * after that, the files have two rows of the key, and {@link KeyIndex} deletes the older one.
 *
 * @param target the table and its files' columns, which are the first columns of a change
 * @param rows all columns of a change
 * @param deletedColumn the index of the column that is true if a change deletes its key's row
 * @param lackingColumn the index of the column that is true if a change lacks a value; negative if no change can lack
 * one
 * @param removes true if a deleting change writes no row, false if it writes a row that is marked as deleted
 */
record ChangeWriter(
        TaskFiles.Target target,
        StructType rows,
        KeyHash key,
        KeyOrder order,
        Positions positions,
        int deletedColumn,
        int lackingColumn,
        boolean removes)
        implements Function2<TaskContext, Iterator<InternalRow>, ChangeWriter.Written>, Serializable {
    private static final long MOST_HELD_BYTES = 32 << 20;
    /** The bytes of memory that a collected row takes besides its own bytes. */
    private static final long BYTES_BESIDE_A_ROW = 200;

    /** The most columns for which Spark generates code: for many columns the compiler takes seconds. */
    private static final int MOST_COMPILED_COLUMNS = 100;

    /** The indexes of the columns with the topic, partition and offset of a row's record. */
    record Positions(int topic, int partition, int offset) implements Serializable {}

    /** The place of a record: partition and offset. */
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
     * @param withoutKey the partition and offset of the first change without a key
     * @param lacksValues whether a change lacks a value that the stored row may have, or has a value without a number
     * in {@link KeyOrder}; from the first such change on, the task writes nothing
     */
    record Written(long changes, Place withoutKey, boolean lacksValues, KeyEntries entries, List<DataFile> files)
            implements Serializable {}

    @Override
    public Written apply(TaskContext task, Iterator<InternalRow> changes) {
        return TaskFiles.write(target, task, files -> new Run(files).write(changes));
    }

    /** Returns a projection that copies each row into one block of memory. */
    private static UnsafeProjection compacting(StructType rows) {
        if (rows.length() <= MOST_COMPILED_COLUMNS) {
            return UnsafeProjection.create(rows);
        }
        List<Expression> columns = new ArrayList<>();
        for (StructField field : rows.fields()) {
            columns.add(new BoundReference(columns.size(), field.dataType(), true));
        }
        return InterpretedUnsafeProjection.createProjection(
                CollectionConverters.asScala(columns).toSeq());
    }

    private record Held(UnsafeRow row, long[] order, long offset) {
        boolean isNewerThan(long[] otherOrder, long otherOffset) {
            int compared = Arrays.compare(order, otherOrder);
            return compared > 0 || compared == 0 && offset > otherOffset;
        }
    }

    private final class Run {
        private final TaskFiles files;
        private final Map<Key, Held> held = new LinkedHashMap<>();
        /** Orders the rows of a file by the table's sort order; null for a table without one. */
        private final Comparator<Held> sorting;

        private final KeyEntries entries = new KeyEntries(order.width(), true);
        private final UnsafeProjection compact = compacting(rows);
        private long heldBytes;
        private long count;
        private Place withoutKey;
        private boolean lacksValues;

        Run(TaskFiles files) {
            this.files = files;
            sorting = sorting(target.table().value());
        }

        private Comparator<Held> sorting(Table table) {
            if (!table.sortOrder().isSorted()) {
                return null;
            }
            RowValues one = new RowValues(table.schema().asStruct(), target.columns());
            RowValues other = new RowValues(table.schema().asStruct(), target.columns());
            Comparator<StructLike> compared = SortOrderComparators.forSchema(table.schema(), table.sortOrder());
            return (left, right) -> compared.compare(one.of(left.row()), other.of(right.row()));
        }

        Written write(Iterator<InternalRow> changes) throws IOException {
            while (changes.hasNext()) {
                hold(changes.next());
            }
            flush();
            return new Written(count, withoutKey, lacksValues, entries.trimmed(), files.close());
        }

        private void hold(InternalRow change) throws IOException {
            count++;
            // Write nothing after such a change, but read the remaining changes, because reading counts their records.
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
            if (inOrder == null) {
                lacksValues = true;
                return;
            }
            if (before != null && before.isNewerThan(inOrder, offset)) {
                return;
            }
            UnsafeRow row = change instanceof UnsafeRow unsafe ? unsafe.copy() : compact.apply(change).copy();
            held.put(of, new Held(row, inOrder, offset));
            heldBytes += bytes(row) - (before == null ? 0 : bytes(before.row()));
            if (heldBytes > MOST_HELD_BYTES) {
                flush();
            }
        }

        private static long bytes(UnsafeRow row) {
            return BYTES_BESIDE_A_ROW + row.getSizeInBytes();
        }

        private void flush() throws IOException {
            List<Map.Entry<Key, Held>> changes = new ArrayList<>(held.entrySet());
            if (sorting != null) {
                changes.sort(Map.Entry.comparingByValue(sorting));
            }
            for (Map.Entry<Key, Held> each : changes) {
                Key of = each.getKey();
                Held change = each.getValue();
                boolean deletes = change.row().getBoolean(deletedColumn);
                int file = KeyEntries.NO_ROW;
                int at = 0;
                if (!deletes || !removes) {
                    RollingDataWriter<InternalRow> writer = files.writer(change.row());
                    file = entries.fileNumber(writer.currentFilePath().toString());
                    at = Math.toIntExact(writer.currentFileRows());
                    writer.write(change.row());
                }
                entries.add(of, file, at, change.order(), change.offset(), deletes);
            }
            if (sorting != null) {
                // Later rows are sorted separately, so they need other files.
                files.close();
            }
            held.clear();
            heldBytes = 0;
        }
    }
}
