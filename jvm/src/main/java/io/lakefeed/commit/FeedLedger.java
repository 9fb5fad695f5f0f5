package io.lakefeed.commit;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.lakefeed.query.KeyBounds;
import io.lakefeed.query.Statements;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.spark.CommitMetadata;
import org.apache.iceberg.spark.Spark3Util;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.parser.ParseException;

/** Reads a table's ledger for Python, and commits snapshots without rows. */
public final class FeedLedger {
    private static final ObjectMapper JSON = new ObjectMapper();

    private FeedLedger() {}

    /** A snapshot, sent to Python as JSON: reading its fields one by one would take dozens of calls. */
    public record Found(long id, Long parent, long sequence, long milliseconds, Map<String, String> summary) {}

    /**
     * Returns a snapshot and its ancestors, newest first, as a JSON list.
     *
     * @param from the id of the snapshot; null for the newest snapshot of the feed's branch
     * @param most the most snapshots to return
     */
    public static String ancestors(Table table, String feed, Long from, int most) throws JsonProcessingException {
        TableMetadata metadata = metadata(table);
        return JSON.writeValueAsString(Ledger.line(metadata, from == null ? Ledger.headId(metadata, feed) : from)
                .limit(most)
                .map(each -> new Found(
                        each.snapshotId(),
                        each.parentId(),
                        each.sequenceNumber(),
                        each.timestampMillis(),
                        each.summary() == null ? Map.of() : each.summary()))
                .toList());
    }

    static TableMetadata metadata(Table table) {
        return ((HasTableOperations) table).operations().current();
    }

    public static Table load(SparkSession spark, String table) throws NoSuchTableException, ParseException {
        return Spark3Util.loadIcebergTable(spark, table);
    }

    public static String properties(Table table) throws JsonProcessingException {
        return JSON.writeValueAsString(table.properties());
    }

    /** The key, in a snapshot's summary, of the commit's id. */
    public static final String COMMIT_ID = Ledger.COMMIT_ID;

    /** Returns the columns of a table as the JSON of Spark's StructType. */
    public static String columns(Table table) {
        return SparkSchemaUtil.convert(table.schema()).json();
    }

    /** Returns, as JSON, names and types of columns whose Iceberg type has a smaller range than the Spark type. */
    public static String constrained(Table table) throws JsonProcessingException {
        Map<String, String> found = new LinkedHashMap<>();
        for (Types.NestedField field : table.schema().columns()) {
            if (field.type().typeId() == Type.TypeID.UUID || field.type().typeId() == Type.TypeID.FIXED) {
                found.put(field.name(), field.type().toString());
            }
        }
        return JSON.writeValueAsString(found);
    }

    /**
     * Returns a feed's position as JSON: {@code commit-id}, {@code snapshot-id} and {@code ranges} of its newest
     * commit, even if that snapshot has expired; and {@code covered}, the offsets that the table has, if they are
     * known. Returns null if the table has no commit of the feed.
     *
     * @throws BatchRefused if the position is unknown after a rollback
     */
    public static String position(Table table, String feed) {
        TableMetadata metadata = metadata(table);
        Position position = Position.of(metadata, Ledger.headId(metadata, feed), feed);
        return position == null ? null : position.toJson();
    }

    /** Returns the newest snapshot of a feed's branch; null if the branch has none. */
    public static Snapshot head(Table table, String feed) {
        return Ledger.head(metadata(table), feed);
    }

    /** Returns whether the table has a replay's rows. The last replay is found even if its snapshot has expired. */
    public static boolean hasReplay(Table table, String feed, String id) {
        TableMetadata metadata = metadata(table);
        LastReplay last = LastReplay.of(metadata, feed);
        return last != null && last.id().equals(id)
                || Ledger.line(metadata, Ledger.headId(metadata, feed))
                        .anyMatch(each -> id.equals(each.summary().get(Ledger.REPLAY)));
    }

    /** Returns whether the table's catalog detects concurrent changes of properties. */
    public static boolean guardsProperties(Table table) {
        return !(((HasTableOperations) table).operations() instanceof CheckedOperations checked) || checked.guardsProperties();
    }

    /** Commits a snapshot without rows, with these properties, to the branch of the feed that they name. */
    public static void commit(Table table, Map<String, String> properties) {
        AppendFiles append = table.newFastAppend();
        String feed = Ledger.owner(properties);
        if (feed != null) {
            append = append.toBranch(Ledger.branch(metadata(table), feed));
        }
        properties.forEach(append::set);
        append.commit();
    }

    /**
     * Runs a statement that changes rows, and adds properties to its snapshot's summary.
     *
     * @param values the values of the statement's parameters
     * @param bounds the bounds of the keys, for a MERGE without parameters; or null
     */
    public static void commit(
            SparkSession spark,
            String statement,
            Map<String, Object> values,
            KeyBounds bounds,
            Map<String, String> properties) {
        CommitMetadata.withCommitProperties(
                properties,
                () -> {
                    if (bounds == null) {
                        Statements.run(spark, statement, values);
                    } else {
                        bounds.merge(spark, statement);
                    }
                    return null;
                },
                RuntimeException.class);
    }
}
