package io.lakefeed.upkeep;

import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.iceberg.Table;
import org.apache.iceberg.actions.DeleteOrphanFiles;
import org.apache.iceberg.io.FileInfo;
import org.apache.iceberg.io.SupportsPrefixOperations;
import org.apache.iceberg.spark.actions.DeleteOrphanFilesSparkAction;
import org.apache.iceberg.spark.actions.SparkActions;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Runs Iceberg's {@code DeleteOrphanFiles} with its own list of files.
 *
 * <p>Iceberg would list everything below the table's location, and would delete a checkpoint or another table there.
 * This class lists only {@code data/} and {@code metadata/}, and files with Iceberg's endings. One request lists a
 * thousand files with their sizes.
 */
public final class OrphanFiles {
    private static final Pattern OURS = Pattern.compile(
            ".*\\.(parquet|orc|avro|puffin|stats|metadata\\.json|metadata\\.json\\.gz|gz\\.metadata\\.json)");
    private static final StructType FILES = new StructType()
            .add("file_path", DataTypes.StringType)
            .add("last_modified", DataTypes.TimestampType);

    private OrphanFiles() {}

    /**
     * Finds the files that no snapshot and no metadata file refers to.
     *
     * @param olderThan milliseconds since 1970; newer files are left alone
     * @param delete whether to delete the files
     * @return the number of files found, and their total bytes
     */
    public static long[] find(SparkSession spark, Table table, long olderThan, boolean delete) {
        Map<String, Long> sizes = new HashMap<>();
        List<Row> listed = new ArrayList<>();
        for (String folder : List.of("data", "metadata")) {
            for (FileInfo file : listed(table, table.location().replaceAll("/+$", "") + "/" + folder + "/")) {
                if (file.createdAtMillis() < olderThan && OURS.matcher(file.location()).matches()) {
                    sizes.put(file.location(), file.size());
                    listed.add(RowFactory.create(file.location(), new Timestamp(file.createdAtMillis())));
                }
            }
        }
        if (listed.isEmpty()) {
            return new long[] {0, 0};
        }
        // Refresh the table after the listing: it then refers to listed files that were committed meanwhile.
        table.refresh();
        DeleteOrphanFilesSparkAction action = SparkActions.get(spark)
                .deleteOrphanFiles(table)
                .compareToFileList(spark.createDataFrame(listed, FILES))
                // No filter by prefix is needed: all listed files are below the table's location, however their paths
                // are written.
                .location(null)
                .olderThan(olderThan);
        DeleteOrphanFiles.Result result = (delete ? action : action.deleteWith(location -> {})).execute();
        long files = 0;
        long bytes = 0;
        for (String location : result.orphanFileLocations()) {
            files++;
            bytes += sizes.getOrDefault(location, 0L);
        }
        return new long[] {files, bytes};
    }

    private static Iterable<FileInfo> listed(Table table, String folder) {
        if (!(table.io() instanceof SupportsPrefixOperations files)) {
            throw new UnsupportedOperationException(
                    table.io().getClass().getName() + " cannot list files, so orphan files cannot be found");
        }
        try {
            return files.listPrefix(folder);
        } catch (RuntimeException missing) {
            // On a file system with folders, which S3 does not have, the folder may not exist yet.
            if (missing.getCause() instanceof java.io.FileNotFoundException) {
                return List.of();
            }
            throw missing;
        }
    }
}
