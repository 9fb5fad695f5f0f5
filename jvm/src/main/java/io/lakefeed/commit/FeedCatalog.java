package io.lakefeed.commit;

import org.apache.iceberg.BaseTable;
import org.apache.iceberg.spark.SparkCatalog;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;

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
}
