package io.lakefeed.upsert;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.io.RollingDataWriter;
import org.apache.iceberg.shaded.org.roaringbitmap.RoaringBitmap;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function2;
import scala.collection.Iterator;

/**
 * Copies the rows of data files to new files, without those that a batch replaces; returns where the rows are now.
 *
 * <p>An input row has the columns of the new files, then the location of its old file and its position in that file.
 *
 * @param replaced the positions of the rows that are replaced, by the old file's location
 * @param apart whether rows of different old files must get into different new files
 */
record FileRewriter(TaskFiles.Target target, Map<String, RoaringBitmap> replaced, boolean apart)
        implements Function2<TaskContext, Iterator<InternalRow>, FileRewriter.Rewritten>, Serializable {
    /**
     * The result of a task.
     *
     * @param stretches the runs of copied rows, each in one old file and one new file
     * @param left the number of replaced rows that the old files really had
     */
    record Rewritten(List<DataFile> files, List<Stretch> stretches, long left) implements Serializable {}

    /** Rows that follow each other in a new file, and, apart from replaced rows, in an old file. */
    static final class Stretch implements Serializable {
        private static final long serialVersionUID = 1L;
        final String old;
        final int from;
        final String now;
        final int at;
        /** The position after the stretch's last row in the old file. */
        int end;
        /** The position after the stretch's last row in the new file. */
        private int endNow;

        Stretch(String old, int from, String now, int at) {
            this.old = old;
            this.from = from;
            this.now = now;
            this.at = at;
            end = from;
            endNow = at;
        }

        private boolean isBefore(int position, String inFile, int atNow) {
            return end == position && endNow == atNow && now.equals(inFile);
        }
    }

    @Override
    public Rewritten apply(TaskContext task, Iterator<InternalRow> rows) {
        return TaskFiles.write(target, task, files -> rewrite(files, rows));
    }

    private Rewritten rewrite(TaskFiles files, Iterator<InternalRow> rows) throws IOException {
        List<Stretch> stretches = new ArrayList<>();
        Stretch last = null;
        int width = target.columns().size();
        UTF8String path = null;
        String old = null;
        RoaringBitmap gone = null;
        long left = 0;
        while (rows.hasNext()) {
            InternalRow row = rows.next();
            UTF8String of = row.getUTF8String(width);
            if (!of.equals(path)) {
                path = of.clone();
                old = of.toString();
                gone = replaced.get(old);
                last = null;
                if (apart) {
                    files.close();
                }
            }
            int position = Math.toIntExact(row.getLong(width + 1));
            if (gone.contains(position)) {
                left++;
                if (last != null && last.end == position) {
                    last.end++;
                }
                continue;
            }
            RollingDataWriter<InternalRow> writer = files.writer(row);
            String now = writer.currentFilePath().toString();
            int at = Math.toIntExact(writer.currentFileRows());
            if (last == null || !last.isBefore(position, now, at)) {
                last = new Stretch(old, position, now, at);
                stretches.add(last);
            }
            last.end++;
            last.endNow++;
            writer.write(row);
        }
        return new Rewritten(files.close(), stretches, left);
    }
}
