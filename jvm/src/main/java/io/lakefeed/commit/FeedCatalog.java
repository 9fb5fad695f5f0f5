package io.lakefeed.commit;

import io.lakefeed.parquet.ColumnarModel;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.spark.SparkCatalog;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;

/**
 * Iceberg's SparkCatalog with tables that check each commit of a feed: {@code
 * spark.sql.catalog.<name>=io.lakefeed.commit.FeedCatalog}.
 *
 * <p>It takes the settings of Iceberg's catalog. Commits without {@code lakefeed.feed} in their summary are not
 * checked; but a rollback moves the recorded positions of the feeds with it ({@link CheckedOperations}).
 */
public final class FeedCatalog extends SparkCatalog {
    private final KnownTables known = new KnownTables();

    /** Spark creates it. */
    public FeedCatalog() {
        // Executors do so in ColumnarPlugin.
        ColumnarModel.install();
    }

    @Override
    public Table loadTable(Identifier identifier) throws NoSuchTableException {
        BaseTable fresh = known.refreshed(identifier);
        if (fresh != null) {
            return SparkTable.create(FeedTable.of(fresh), (String) null);
        }
        Table table = super.loadTable(identifier);
        if (table instanceof SparkTable spark
                && spark.table() instanceof BaseTable iceberg
                && !(iceberg instanceof FeedTable)) {
            if (spark.branch() == null) {
                known.put(identifier, iceberg);
            }
            return SparkTable.create(FeedTable.of(iceberg), spark.branch());
        }
        return table;
    }

    /**
     * Takes fences through the check: Iceberg's implementation bypasses {@link #loadTable}, and two drivers could take
     * one. Adds columns with defaults, which Iceberg's tables have and its Spark catalog refuses.
     */
    @Override
    public Table alterTable(Identifier identifier, TableChange... changes) throws NoSuchTableException {
        List<TableChange> others = new ArrayList<>();
        Map<String, String> fences = new HashMap<>();
        for (TableChange change : changes) {
            if (change instanceof TableChange.SetProperty set && set.property().startsWith(Ledger.FENCES)) {
                fences.put(set.property(), set.value());
            } else {
                others.add(change);
            }
        }
        if (!fences.isEmpty()
                && loadTable(identifier) instanceof SparkTable spark
                && spark.table() instanceof FeedTable table) {
            table.takeFences(fences);
        }
        if (others.stream().anyMatch(ColumnDefaults::has)) {
            if (loadTable(identifier) instanceof SparkTable spark) {
                ColumnDefaults.add(spark.table(), others);
            }
            return loadTable(identifier);
        }
        return others.isEmpty() ? loadTable(identifier) : super.alterTable(identifier, others.toArray(new TableChange[0]));
    }
}
