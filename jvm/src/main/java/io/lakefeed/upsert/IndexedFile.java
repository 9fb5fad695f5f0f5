package io.lakefeed.upsert;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PrimitiveIterator;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.deletes.PositionDeleteWriter;
import org.apache.iceberg.encryption.EncryptedOutputFile;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.relocated.com.google.common.collect.Iterables;
import org.apache.iceberg.shaded.org.roaringbitmap.IntConsumer;
import org.apache.iceberg.shaded.org.roaringbitmap.RoaringBitmap;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.spark.data.SparkParquetReaders;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/** A data file of an indexed table, and the positions of its deleted rows. */
final class IndexedFile {
    private final DataFile file;
    private List<DeleteFile> deletes;
    /** The positions of deleted rows; null until they are first needed. */
    private RoaringBitmap deleted;
    /** The number of keys whose rows are in this file. */
    int live;

    IndexedFile(DataFile file, List<DeleteFile> deletes) {
        this.file = file;
        this.deletes = deletes;
    }

    DataFile file() {
        return file;
    }

    /** Replaces the delete files by those of another snapshot, in which the file has the same rows. */
    void follow(List<DeleteFile> now) {
        deletes = now;
    }

    RoaringBitmap deleted(Table table) {
        if (deleted == null) {
            deleted = new RoaringBitmap();
            new BaseDeleteLoader(each -> table.io().newInputFile(each))
                    .loadPositionDeletes(deletes, file.location())
                    .forEach(position -> deleted.add(Math.toIntExact(position)));
        }
        return deleted;
    }

    /**
     * A new delete file for one data file, which replaces the data file's older delete files.
     *
     * @param of the data file whose rows are deleted
     * @param positions the positions of all deleted rows of the data file
     * @param added the new delete file
     * @param removed the delete files that the new one replaces: they delete rows of no other data file
     * @param isDoubled whether one of the new positions was already deleted
     * @param repeated how many positions are also in delete files that stay, because other data files share them
     */
    record Deletes(
            IndexedFile of,
            RoaringBitmap positions,
            DeleteFile added,
            List<DeleteFile> removed,
            boolean isDoubled,
            long repeated) {
        /** Updates the data file, after the commit with the new delete file has succeeded. */
        void apply() {
            List<DeleteFile> now = new ArrayList<>(of.deletes);
            now.removeAll(removed);
            now.add(added);
            of.deletes = now;
            of.deleted = positions;
        }
    }

    private PartitionSpec spec(Table table) {
        return table.specs().get(file.specId());
    }

    private StructLike partition(Table table) {
        // null for an unpartitioned table: with an empty partition, the file's key would contain an empty folder.
        return spec(table).isUnpartitioned() ? null : file.partition();
    }

    /** Returns the delete files that delete only rows of this data file. */
    List<DeleteFile> ownDeletes() {
        return deletes.stream().filter(ContentFileUtil::isFileScoped).toList();
    }

    /** Returns how many of the deleted positions are in delete files that other data files share. */
    long deletedWithOthers(RoaringBitmap positions) {
        long own = ownDeletes().stream().mapToLong(DeleteFile::recordCount).sum();
        return Math.max(0, positions.getLongCardinality() - own);
    }

    private Deletes replacedBy(DeleteFile added, RoaringBitmap before, RoaringBitmap positions, RoaringBitmap all) {
        boolean isDoubled = RoaringBitmap.intersects(before, positions);
        return new Deletes(this, all, added, ownDeletes(), isDoubled, deletedWithOthers(before));
    }

    /** Writes the files' deletion vectors, which format version 3 requires, into one Puffin file. */
    static List<Deletes> writeVectors(
            Table table, Map<IndexedFile, RoaringBitmap> replaced, OutputFileFactory files) {
        BaseDVFileWriter writer = new BaseDVFileWriter(files, location -> null);
        Map<String, RoaringBitmap> all = new HashMap<>();
        try (writer) {
            replaced.forEach((of, positions) -> {
                RoaringBitmap now = RoaringBitmap.or(of.deleted(table), positions);
                all.put(of.file.location(), now);
                PartitionSpec spec = of.spec(table);
                StructLike partition = of.partition(table);
                now.forEach((IntConsumer) at -> writer.delete(of.file.location(), at, spec, partition));
            });
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
        Map<String, DeleteFile> added = new HashMap<>();
        writer.result().deleteFiles().forEach(vector -> added.put(vector.referencedDataFile(), vector));
        List<Deletes> done = new ArrayList<>();
        replaced.forEach((of, positions) -> {
            String location = of.file.location();
            done.add(of.replacedBy(added.get(location), of.deleted(table), positions, all.get(location)));
        });
        return done;
    }

    /** Writes a delete file with these positions and all positions that are already deleted. */
    Deletes write(Table table, RoaringBitmap positions, OutputFileFactory files, TaskFiles.RowWriters writers) {
        RoaringBitmap before = deleted(table);
        RoaringBitmap all = RoaringBitmap.or(before, positions);
        PartitionSpec spec = spec(table);
        StructLike partition = partition(table);
        EncryptedOutputFile out = partition == null ? files.newOutputFile() : files.newOutputFile(spec, partition);
        PositionDeleteWriter<InternalRow> writer = writers.newPositionDeleteWriter(out, spec, partition);
        try (writer) {
            PositionDelete<InternalRow> delete = PositionDelete.create();
            for (PrimitiveIterator.OfInt each = all.stream().iterator(); each.hasNext(); ) {
                writer.write(delete.set(file.location(), each.nextInt()));
            }
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
        return replacedBy(writer.toDeleteFile(), before, positions, all);
    }

    /** The row of a key according to the index, with the numbers that order the key's changes. */
    record Row(IndexedFile of, int position, long high, int low, long[] order) {
        /** Reads the row; returns false if its key or its order differs, or if it cannot be read by its position. */
        boolean isAsIn(KeyIndex index, Table table) {
            if (of.file.format() != FileFormat.PARQUET) {
                return true;
            }
            List<String> names = new ArrayList<>(index.keys);
            names.addAll(index.orderBy);
            Schema columns = table.schema().select(names);
            StructType types = SparkSchemaUtil.convert(columns);
            KeyHash own = index.hash.on(types, index.keys);
            try (CloseableIterable<InternalRow> rows = Parquet.read(table.io().newInputFile(of.file))
                    .project(columns)
                    .createReaderFunc(type -> SparkParquetReaders.buildReader(columns, type))
                    .reuseContainers()
                    .build()) {
                InternalRow row = Iterables.get(rows, position);
                if (own.lacksKey(row)) {
                    return true;
                }
                own.hash(row);
                return own.high() == high
                        && own.low() == low
                        && Arrays.equals(new KeyOrder(types, index.orderBy).of(row), order);
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            }
        }
    }
}
