package io.lakefeed.bench;

import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.SnapshotChanges;
import org.apache.iceberg.Table;

/** Gives a table the metadata of many data files, by real commits: what a feed sees that only appends. */
public final class ManyFiles {
    private static final int FILES_A_COMMIT = 1000;

    private ManyFiles() {}

    /** Appends so many copies of the entry of a data file that the newest commit has added; no such files exist. */
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
