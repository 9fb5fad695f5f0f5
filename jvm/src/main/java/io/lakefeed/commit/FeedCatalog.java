package io.lakefeed.commit;

import io.lakefeed.parquet.ColumnarModel;
import java.lang.ref.SoftReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.BaseMetastoreTableOperations;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.UpdateSchema;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.Literal;
import org.apache.iceberg.spark.SparkCatalog;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.iceberg.types.Type;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Iceberg's SparkCatalog with tables that check each commit of a feed. Set it with {@code
 * spark.sql.catalog.<name>=io.lakefeed.commit.FeedCatalog}.
 *
 * <p>The settings are those of Iceberg's catalog. Commits without {@code lakefeed.feed} in their summary are not
 * checked, but a rollback also restores the older positions of feeds ({@link CheckedOperations}).
 */
public final class FeedCatalog extends SparkCatalog {
    private final KnownTables known = new KnownTables();

    public FeedCatalog() {
        // Install Iceberg's model in the driver; JvmPlugin installs it in executors.
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
     * Changes a table. Fences, which are properties, are set through {@link FeedTable}: Iceberg's own method bypasses
     * {@link #loadTable}, so two drivers could take the same fence. Columns with defaults are added here, because
     * Iceberg's Spark catalog refuses them.
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

    /**
     * The tables that a catalog has loaded, so that a metadata file is parsed only once.
     *
     * <p>A batch loads its table several times, and Iceberg would parse the whole metadata file each time. For a table
     * with thousands of snapshots, parsing would take most of the time of a small batch. Unlike with Iceberg's own
     * cache of tables, every load still asks the catalog which file is current.
     */
    static final class KnownTables {
        private static final int MOST_TABLES = 500;

        private final Map<Identifier, SoftReference<BaseTable>> tables = new LinkedHashMap<>(16, 0.75f, true) {
            private static final long serialVersionUID = 1L;

            @Override
            protected boolean removeEldestEntry(Map.Entry<Identifier, SoftReference<BaseTable>> eldest) {
                return size() > MOST_TABLES;
            }
        };

        /** Remembers a table, except of a REST catalog, which sends new credentials with every load. */
        synchronized void put(Identifier identifier, BaseTable table) {
            if (table.operations() instanceof BaseMetastoreTableOperations) {
                tables.put(identifier, new SoftReference<>(table));
            }
        }

        /** Returns a remembered table with current metadata; null if the table is not remembered, or was recreated. */
        BaseTable refreshed(Identifier identifier) {
            BaseTable table;
            synchronized (this) {
                SoftReference<BaseTable> kept = tables.get(identifier);
                table = kept == null ? null : kept.get();
            }
            if (table == null) {
                return null;
            }
            try {
                CheckedOperations.refresh(table.operations());
                return table;
            } catch (RuntimeException changed) {
                // The table was dropped or recreated, or the catalog does not answer: then the load that follows
                // reports the error.
                synchronized (this) {
                    tables.remove(identifier);
                }
                return null;
            }
        }
    }

    /** Adds columns whose default is also their value in existing rows: {@code ADD COLUMNS (c STRING DEFAULT 'x')}. */
    static final class ColumnDefaults {
        private ColumnDefaults() {}

        static boolean has(TableChange change) {
            return change instanceof TableChange.AddColumn add && add.defaultValue() != null;
        }

        /**
         * Adds the columns of one statement in one commit.
         *
         * @throws UnsupportedOperationException if a change is not a new optional column at the end
         */
        static void add(org.apache.iceberg.Table table, List<TableChange> changes) {
            UpdateSchema update = table.updateSchema();
            for (TableChange change : changes) {
                if (!(change instanceof TableChange.AddColumn add) || !add.isNullable() || add.position() != null) {
                    throw new UnsupportedOperationException("an ALTER TABLE that adds a column with a default can add only"
                            + " optional columns at the end: make other changes in another statement");
                }
                String[] names = add.fieldNames();
                String parent = names.length == 1 ? null : String.join(".", Arrays.copyOf(names, names.length - 1));
                Type type = SparkSchemaUtil.convert(add.dataType());
                Literal<?> value = add.defaultValue() == null ? null : literal(add.defaultValue().getValue().value());
                update.addColumn(parent, names[names.length - 1], type, add.comment(), value);
            }
            update.commit();
        }

        private static Literal<?> literal(Object value) {
            if (value instanceof UTF8String text) {
                return Expressions.lit(text.toString());
            }
            return Expressions.lit(value instanceof Decimal decimal ? decimal.toJavaBigDecimal() : value);
        }
    }
}
