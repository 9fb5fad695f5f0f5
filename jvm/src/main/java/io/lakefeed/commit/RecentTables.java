package io.lakefeed.commit;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.ref.SoftReference;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;

/**
 * Keeps the newest metadata of tables that this driver has loaded or committed, for views that must not send requests.
 */
public final class RecentTables {
    private static final int MOST_TABLES = 500;
    /** The keys of a snapshot's summary to show; others may have long values, such as many ranges. */
    private static final Set<String> SUMMARY = Set.of(
            "added-data-files",
            "added-records",
            "deleted-records",
            "total-data-files",
            "total-delete-files",
            "total-equality-deletes",
            "total-files-size",
            "total-position-deletes",
            "total-records",
            Ledger.FEED,
            "lakefeed.batch-id");

    private static final ObjectMapper JSON = new ObjectMapper();

    private record Loaded(SoftReference<TableMetadata> metadata, long at) {}

    private static final Map<String, Loaded> LOADED = new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Loaded> eldest) {
            return size() > MOST_TABLES;
        }
    };

    private RecentTables() {}

    static void put(String table, TableMetadata metadata) {
        synchronized (LOADED) {
            LOADED.put(table, new Loaded(new SoftReference<>(metadata), System.currentTimeMillis()));
        }
    }

    /**
     * Returns JSON with a table's newest snapshots and schemas, oldest first, under the names of Iceberg's
     * specification, and the time {@code seen-ms} when the table was loaded. Returns null if this driver has not loaded
     * the table, or has dropped its metadata because memory is scarce.
     */
    public static String describe(String table, int mostSnapshots, int mostSchemas) {
        Loaded loaded;
        synchronized (LOADED) {
            loaded = LOADED.get(table);
        }
        TableMetadata metadata = loaded == null ? null : loaded.metadata().get();
        if (metadata == null) {
            return null;
        }
        ObjectNode json = JSON.createObjectNode();
        json.put("seen-ms", loaded.at());
        json.put("current-schema-id", metadata.currentSchemaId());
        Snapshot current = metadata.currentSnapshot();
        if (current != null) {
            json.put("current-snapshot-id", current.snapshotId());
            put(json.putObject("current-snapshot"), current);
        }
        List<Snapshot> snapshots = metadata.snapshots().stream()
                .sorted(Comparator.comparingLong(Snapshot::sequenceNumber)
                        .thenComparingLong(Snapshot::timestampMillis))
                .toList();
        json.put("snapshot-count", snapshots.size());
        ArrayNode newest = json.putArray("snapshots");
        tail(snapshots, mostSnapshots).forEach(each -> put(newest.addObject(), each));
        List<Schema> schemas = metadata.schemas().stream()
                .sorted(Comparator.comparingInt(Schema::schemaId))
                .toList();
        ArrayNode all = json.putArray("schemas");
        for (Schema each : tail(schemas, mostSchemas)) {
            ObjectNode schema = (ObjectNode) Ledger.parsed(SchemaParser.toJson(each));
            snapshots.stream()
                    .filter(snapshot -> Integer.valueOf(each.schemaId()).equals(snapshot.schemaId()))
                    .findFirst()
                    .ifPresent(first -> schema.put("first-ms", first.timestampMillis()));
            all.add(schema);
        }
        return json.toString();
    }

    private static void put(ObjectNode json, Snapshot snapshot) {
        json.put("snapshot-id", snapshot.snapshotId()).put("timestamp-ms", snapshot.timestampMillis());
        ObjectNode summary = json.putObject("summary");
        summary.put("operation", snapshot.operation());
        snapshot.summary().forEach((key, value) -> {
            if (SUMMARY.contains(key)) {
                summary.put(key, value);
            }
        });
    }

    private static <T> List<T> tail(List<T> all, int most) {
        return all.subList(Math.max(0, all.size() - most), all.size());
    }
}
