package io.lakefeed.commit;

import java.lang.ref.SoftReference;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.iceberg.TableMetadata;

/**
 * Stores the newest metadata of tables that this driver has loaded or committed, for views that must not send requests.
 */
public final class RecentTables {
    private static final int MOST_TABLES = 500;

    /** A table's metadata, and the time in milliseconds when it was loaded. */
    public record Seen(TableMetadata metadata, long at) {}

    private static final Map<String, SoftReference<Seen>> TABLES = new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, SoftReference<Seen>> eldest) {
            return size() > MOST_TABLES;
        }
    };

    private RecentTables() {}

    static synchronized void put(String table, TableMetadata metadata) {
        TABLES.put(table, new SoftReference<>(new Seen(metadata, System.currentTimeMillis())));
    }

    /** Returns null if this driver has not loaded the table, or has dropped its metadata because memory was scarce. */
    public static synchronized Seen of(String table) {
        SoftReference<Seen> kept = TABLES.get(table);
        return kept == null ? null : kept.get();
    }
}
