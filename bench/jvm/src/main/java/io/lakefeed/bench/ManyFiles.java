package io.lakefeed.bench;

import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.SnapshotChanges;
import org.apache.iceberg.Table;

/** Adds many data files to a table's metadata by real commits, because a feed that appends sees only the metadata. */
public final class ManyFiles {
    private static final int FILES_A_COMMIT = 1000;

    private ManyFiles() {}

    /** Appends {@code count} copies of the entry of one data file of the newest commit; the new files do not exist. */
    public static void append(Table table, int count) {
        DataFile first = SnapshotChanges.builderFor(table)
                .snapshot(table.currentSnapshot())
                .build()
                .addedDataFiles()
                .iterator()
                .next();
        for (int done = 0; done < count; done += FILES_A_COMMIT) {
            AppendFiles append = table.newAppend();
            for (int number = done; number < Math.min(count, done + FILES_A_COMMIT); number++) {
                String path = first.location().replaceFirst("\\.parquet$", "-" + number + ".parquet");
                append.appendFile(DataFiles.builder(table.spec())
                        .copy(first)
                        .withPath(path)
                        .build());
            }
            append.commit();
        }
    }
}
