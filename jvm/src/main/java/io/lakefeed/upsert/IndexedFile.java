package io.lakefeed.upsert;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
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

/** A data file of an indexed table, and the positions in it that are deleted. */
final class IndexedFile {
    private final DataFile file;
    private List<DeleteFile> deletes;
    /** Null until they are needed: then they are read once. */
    private RoaringBitmap deleted;
    /** How many keys have their row in this file. */
    int live;

    IndexedFile(DataFile file, List<DeleteFile> deletes) {
        this.file = file;
        this.deletes = deletes;
    }

    DataFile file() {
        return file;
    }

    /** Takes the delete files of a snapshot in which the file's rows are the same. */
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
     * A delete file that replaces those of one data file.
     *
     * @param of the data file
     * @param positions all that are deleted in it
     * @param added the new delete file
     * @param removed the delete files of this data file alone, which it replaces
     * @param isDoubled whether one of the positions was deleted before
     * @param repeated how many of the positions are in a delete file that stays, because it is of other data files, too
     */
    record Deletes(
            IndexedFile of,
            RoaringBitmap positions,
            DeleteFile added,
            List<DeleteFile> removed,
            boolean isDoubled,
            long repeated) {
        /** Notes that the commit with it has succeeded. */
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
        // An empty partition would be an empty folder in the file's key.
        return spec(table).isUnpartitioned() ? null : file.partition();
    }

    private Deletes replacedBy(DeleteFile added, RoaringBitmap before, RoaringBitmap positions, RoaringBitmap all) {
        List<DeleteFile> own = deletes.stream().filter(ContentFileUtil::isFileScoped).toList();
        long removed = own.stream().mapToLong(DeleteFile::recordCount).sum();
        long repeated = Math.max(0, before.getLongCardinality() - removed);
        return new Deletes(this, all, added, own, RoaringBitmap.intersects(before, positions), repeated);
    }

    /** Writes the deletion vectors of these files into one Puffin file; format version 3 has no other delete files. */
    static List<Deletes> writeVectors(
            Table table, Map<IndexedFile, RoaringBitmap> replaced, OutputFileFactory files) {
        BaseDVFileWriter writer = new BaseDVFileWriter(files, location -> null);
        Map<String, RoaringBitmap> all = new HashMap<>();
        try (writer) {
            replaced.forEach((of, positions) -> {
                RoaringBitmap now = RoaringBitmap.or(of.deleted(table), positions);
                all.put(of.file.location(), now);
                PartitionSpec spec = of.spec(table);
                now.forEach((IntConsumer) at -> writer.delete(of.file.location(), at, spec, of.partition(table)));
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

    /** Writes a delete file with these positions and those that were deleted before. */
    Deletes write(Table table, RoaringBitmap positions, OutputFileFactory files, ChangeWriter.RowWriters writers) {
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

    /** The row that a key has by the index. */
    record Row(IndexedFile of, int position, long high, int low) {
        /** Reads the row; returns whether it has that key, or none that can be read in this way. */
        boolean hasItsKey(Table table, List<String> keys, KeyHash hash) {
            if (of.file.format() != FileFormat.PARQUET) {
                return true;
            }
            Schema columns = table.schema().select(keys);
            KeyHash own = hash.on(SparkSchemaUtil.convert(columns), keys);
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
                return own.high() == high && own.low() == low;
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            }
        }
    }
}
