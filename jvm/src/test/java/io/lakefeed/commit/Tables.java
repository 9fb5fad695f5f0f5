package io.lakefeed.commit;

import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakefeed.Json;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SnapshotParser;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.types.Types;

/** Creates metadata of tables, with commits, rollbacks and expiry. A snapshot's sequence number is its id. */
final class Tables {
    static final String FEED = "f";

    private Tables() {}

    static TableMetadata empty(String... properties) {
        Schema schema = new Schema(Types.NestedField.optional(1, "x", Types.LongType.get()));
        return set(TableMetadata.newTableMetadata(schema, PartitionSpec.unpartitioned(), "memory:/t", Map.of()), properties);
    }

    /** Returns the table with these properties: key, value, key, value, … */
    static TableMetadata set(TableMetadata table, String... properties) {
        TableMetadata.Builder builder = TableMetadata.buildFrom(table);
        for (int at = 0; at < properties.length; at += 2) {
            builder.setProperties(Map.of(properties[at], Json.quoted(properties[at + 1])));
        }
        return builder.build();
    }

    /** Returns the table with an append after the current snapshot; {@code summary} is key, value, key, value, … */
    static TableMetadata add(TableMetadata table, long id, String... summary) {
        return addAs("append", table, id, summary);
    }

    static TableMetadata addAs(String operation, TableMetadata table, long id, String... summary) {
        ObjectNode json = JsonNodeFactory.instance.objectNode();
        json.put("snapshot-id", id).put("sequence-number", id).put("timestamp-ms", System.currentTimeMillis());
        if (table.currentSnapshot() != null) {
            json.put("parent-snapshot-id", table.currentSnapshot().snapshotId());
        }
        ObjectNode object = json.putObject("summary").put("operation", operation);
        for (int at = 0; at < summary.length; at += 2) {
            object.put(summary[at], Json.quoted(summary[at + 1]));
        }
        json.put("manifest-list", "memory:/t/" + id).put("schema-id", 0);
        return TableMetadata.buildFrom(table)
                .setBranchSnapshot(SnapshotParser.fromJson(json.toString()), SnapshotRef.MAIN_BRANCH)
                .build();
    }

    /**
     * Returns the table with a commit of the feed {@value #FEED}, with the id {@code c<id>}; {@code ranges} is topic
     * id, start, end.
     */
    static TableMetadata commit(TableMetadata table, long id, String ranges, String... summary) {
        return add(table, id, join(new String[] {
            Ledger.FEED, FEED, Ledger.COMMIT_ID, "c" + id, Ledger.RANGES, ranges(ranges),
        }, summary));
    }

    /** Returns the table with a backfill of the feed {@value #FEED}. */
    static TableMetadata backfill(TableMetadata table, long id, String ranges, String... summary) {
        return add(table, id, join(new String[] {
            Ledger.BACKFILL_OF, FEED, Ledger.COMMIT_ID, "b" + id, Ledger.RANGES, ranges(ranges),
        }, summary));
    }

    /** Returns the table after a rollback to an older snapshot. */
    static TableMetadata rollBack(TableMetadata table, long id) {
        return TableMetadata.buildFrom(table).setBranchSnapshot(id, SnapshotRef.MAIN_BRANCH).build();
    }

    static TableMetadata branch(TableMetadata table, String name, long id) {
        return TableMetadata.buildFrom(table)
                .setRef(name, SnapshotRef.branchBuilder(id).build())
                .build();
    }

    static TableMetadata withoutBranch(TableMetadata table, String name) {
        return TableMetadata.buildFrom(table).removeRef(name).build();
    }

    /**
     * Returns the table with the snapshot of {@code change} in a branch instead of {@code main}; creates a missing
     * branch.
     */
    static TableMetadata inBranch(TableMetadata table, String name, UnaryOperator<TableMetadata> change) {
        TableMetadata as = table.ref(name) == null ? table : rollBack(table, table.ref(name).snapshotId());
        return TableMetadata.buildFrom(table)
                .setBranchSnapshot(change.apply(as).currentSnapshot(), name)
                .build();
    }

    static TableMetadata expire(TableMetadata table, long... ids) {
        return TableMetadata.buildFrom(table)
                .removeSnapshots(Arrays.stream(ids).boxed().toList())
                .build();
    }

    /**
     * Returns {@code {"t":{"id":"A","ranges":{"0":[3,7]}}}} for {@code A 3 7}: a topic's id, then start and end for
     * each partition.
     */
    static String ranges(String text) {
        List<String> parts = List.of(text.split(" "));
        ObjectNode json = JsonNodeFactory.instance.objectNode();
        ObjectNode ranges = json.putObject("t").put("id", parts.get(0)).putObject("ranges");
        for (int at = 1; at + 1 < parts.size(); at += 2) {
            ranges.putArray(String.valueOf(at / 2)).add(Long.parseLong(parts.get(at))).add(Long.parseLong(parts.get(at + 1)));
        }
        return json.toString();
    }

    /** Returns the property {@value Ledger#MOVED} of a move; {@code positions} has the form of {@link #ranges}. */
    static String moved(String positions) {
        return "{'reason':'rewind','positions':" + ranges(positions) + "}";
    }

    /** Returns the offsets of partition 0 of the topic {@code t}: {@code 0 5 9 12} for [0, 5) and [9, 12). */
    static String offsets(Covered covered) {
        StringBuilder text = new StringBuilder();
        covered.toJson().path("t").path("offsets").path("0").forEach(bound -> text.append(' ').append(bound.asLong()));
        return text.toString().strip();
    }

    static Long head(TableMetadata table) {
        return table.currentSnapshot() == null ? null : table.currentSnapshot().snapshotId();
    }

    private static String[] join(String[] one, String[] other) {
        String[] all = Arrays.copyOf(one, one.length + other.length);
        System.arraycopy(other, 0, all, one.length, other.length);
        return all;
    }
}
