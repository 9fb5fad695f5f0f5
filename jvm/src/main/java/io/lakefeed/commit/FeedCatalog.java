package io.lakefeed.commit;

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
 * Iceberg's SparkCatalog whose tables check each commit of a feed: {@code spark.sql.catalog.<name>=io.lakefeed.commit.FeedCatalog}.
 *
 * <p>Takes the settings of Iceberg's own. Commits that carry no {@code lakefeed.feed} in their summary are Iceberg's alone,
 * but for one thing: a rollback takes the feeds' recorded positions with it ({@link CheckedOperations}).
 */
public final class FeedCatalog extends SparkCatalog {
    /** Made by Spark. */
    public FeedCatalog() {}

    @Override
    public Table loadTable(Identifier identifier) throws NoSuchTableException {
        Table table = super.loadTable(identifier);
        if (table instanceof SparkTable spark
                && spark.table() instanceof BaseTable iceberg
                && !(iceberg instanceof FeedTable)) {
            return SparkTable.create(FeedTable.of(iceberg), spark.branch());
        }
        return table;
    }

    /** Iceberg's own way goes past {@link #loadTable}; a fence is taken through the check, or two drivers take one. */
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
        return others.isEmpty() ? loadTable(identifier) : super.alterTable(identifier, others.toArray(new TableChange[0]));
    }
}
