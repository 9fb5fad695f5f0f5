package io.lakefeed.commit;

import java.lang.ref.SoftReference;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.iceberg.BaseMetastoreTableOperations;
import org.apache.iceberg.BaseTable;
import org.apache.spark.sql.connector.catalog.Identifier;

/**
 * The tables that a catalog has loaded, so that a metadata file is parsed once.
 *
 * <p>A batch asks for its table several times, and Iceberg parses the whole file for each: with thousands of snapshots in
 * it that would be most of what a small batch costs. The catalog is asked each time which file is current, so that a table
 * is as fresh as one that is loaded for the first time. That is not so with Iceberg's own cache of tables.
 */
final class KnownTables {
    private static final int MOST_TABLES = 500;

    private final Map<Identifier, SoftReference<BaseTable>> tables = new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Identifier, SoftReference<BaseTable>> eldest) {
            return size() > MOST_TABLES;
        }
    };

    /** Keeps a table, if its catalog says which metadata file is current: a REST catalog sends keys with each table. */
    synchronized void put(Identifier identifier, BaseTable table) {
        if (table.operations() instanceof BaseMetastoreTableOperations) {
            tables.put(identifier, new SoftReference<>(table));
        }
    }

    /** Returns a table as it is now; null where it has to be loaded: it is not known, or another has its name. */
    BaseTable refreshed(Identifier identifier) {
        BaseTable table = known(identifier);
        if (table == null) {
            return null;
        }
        try {
            CheckedOperations.refresh(table.operations());
            return table;
        } catch (RuntimeException changed) {
            // Dropped, or dropped and created again. If the catalog does not answer, loading it says so.
            forget(identifier);
            return null;
        }
    }

    private synchronized BaseTable known(Identifier identifier) {
        SoftReference<BaseTable> kept = tables.get(identifier);
        return kept == null ? null : kept.get();
    }

    private synchronized void forget(Identifier identifier) {
        tables.remove(identifier);
    }
}
