package io.lakefeed.dashboard;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakefeed.commit.RecentTables;
import java.util.Comparator;
import java.util.List;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableMetadata;

/** Describes tables by the metadata that this driver has loaded, without a request. */
public final class TableView {
    private static final ObjectMapper JSON = new ObjectMapper();

    private TableView() {}

    /**
     * Returns JSON with a table's newest snapshots and schemas, oldest first, under the names of Iceberg's
     * specification, and the time {@code seen-ms} when the table was loaded. Returns null if {@link RecentTables} does
     * not have the table.
     *
     * @param summary the keys of a snapshot's summary to return
     */
    public static String describe(String table, int mostSnapshots, int mostSchemas, List<String> summary)
            throws JsonProcessingException {
        RecentTables.Seen seen = RecentTables.of(table);
        if (seen == null) {
            return null;
        }
        TableMetadata metadata = seen.metadata();
        ObjectNode json = JSON.createObjectNode();
        json.put("seen-ms", seen.at());
        json.put("current-schema-id", metadata.currentSchemaId());
        Snapshot current = metadata.currentSnapshot();
        if (current != null) {
            json.put("current-snapshot-id", current.snapshotId());
            put(json.putObject("current-snapshot"), current, summary);
        }
        List<Snapshot> snapshots = metadata.snapshots().stream()
                .sorted(Comparator.comparingLong(Snapshot::sequenceNumber)
                        .thenComparingLong(Snapshot::timestampMillis))
                .toList();
        json.put("snapshot-count", snapshots.size());
        ArrayNode newest = json.putArray("snapshots");
        tail(snapshots, mostSnapshots).forEach(each -> put(newest.addObject(), each, summary));
        List<Schema> schemas = metadata.schemas().stream()
                .sorted(Comparator.comparingInt(Schema::schemaId))
                .toList();
        ArrayNode all = json.putArray("schemas");
        for (Schema each : tail(schemas, mostSchemas)) {
            ObjectNode schema = (ObjectNode) JSON.readTree(SchemaParser.toJson(each));
            snapshots.stream()
                    .filter(snapshot -> Integer.valueOf(each.schemaId()).equals(snapshot.schemaId()))
                    .findFirst()
                    .ifPresent(first -> schema.put("first-ms", first.timestampMillis()));
            all.add(schema);
        }
        return json.toString();
    }

    private static void put(ObjectNode json, Snapshot snapshot, List<String> keys) {
        json.put("snapshot-id", snapshot.snapshotId()).put("timestamp-ms", snapshot.timestampMillis());
        ObjectNode summary = json.putObject("summary");
        summary.put("operation", snapshot.operation());
        snapshot.summary().forEach((key, value) -> {
            if (keys.contains(key)) {
                summary.put(key, value);
            }
        });
    }

    private static <T> List<T> tail(List<T> all, int most) {
        return all.subList(Math.max(0, all.size() - most), all.size());
    }
}
