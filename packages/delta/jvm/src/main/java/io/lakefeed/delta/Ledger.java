package io.lakefeed.delta;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Set;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.CommitInfo;
import org.apache.spark.sql.delta.actions.DomainMetadata;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/** The newest entry of a feed's ledger, which a table's log has as metadata of the domain {@code lakefeed.<feed>}. */
final class Ledger {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Set<String> REPLACES = Set.of(
            "CREATE OR REPLACE TABLE", "CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE", "REPLACE TABLE AS SELECT");

    /** The number of the newest entry; 0 if the feed has none. */
    final int number;

    /** The version that the newest entry's commit was based on. */
    final long base;

    /** The entry's text; null if the feed has none. */
    final String entry;

    private Ledger(int number, long base, String entry) {
        this.number = number;
        this.base = base;
        this.entry = entry;
    }

    static String domain(String feed) {
        return "lakefeed." + feed;
    }

    static Ledger of(Snapshot snapshot, String feed) {
        for (DomainMetadata each : CollectionConverters.asJava(snapshot.domainMetadata())) {
            if (each.domain().equals(domain(feed)) && !each.removed()) {
                JsonNode stored = parsed(each.configuration());
                return new Ledger(
                        stored.path("number").asInt(),
                        stored.path("base").asLong(),
                        stored.path("entry").toString());
            }
        }
        return new Ledger(0, -1, null);
    }

    /** Returns the metadata that stores an entry; {@code base} is the version that its commit is based on. */
    static DomainMetadata next(String feed, int number, String entry, long base) {
        ObjectNode stored = JSON.createObjectNode();
        stored.put("number", number).put("base", base).set("entry", parsed(entry));
        return new DomainMetadata(domain(feed), stored.toString(), false);
    }

    private static JsonNode parsed(String json) {
        try {
            return JSON.readTree(json);
        } catch (JsonProcessingException damaged) {
            throw new IllegalStateException("lakefeed: the ledger's entry is no JSON: " + json, damaged);
        }
    }

    /**
     * Refuses a table whose rows were taken back after the feed's newest commit.
     *
     * <p>RESTORE and REPLACE leave the domain as it is, so the domain would name offsets whose rows are gone.
     */
    void requireRows(DeltaLog log, Snapshot snapshot) {
        if (entry == null || snapshot.version() <= base + 1) {
            return;
        }
        var changes = log.getChanges(base + 1, snapshot.version(), Option.empty(), false);
        while (changes.hasNext()) {
            Tuple2<Object, scala.collection.immutable.Seq<Action>> change = changes.next();
            for (Action action : CollectionConverters.asJava(change._2())) {
                if (action instanceof CommitInfo info && takesRowsBack(info)) {
                    throw new IllegalStateException("lakefeed: version " + change._1() + " of the table is "
                            + info.operation() + ", so rows of the feed's last batches may be gone");
                }
            }
        }
    }

    private boolean takesRowsBack(CommitInfo info) {
        if (info.operation().equals("RESTORE")) {
            Option<String> given = info.operationParameters().get("version");
            String version = given.isEmpty() ? "" : given.get().replace("\"", "");
            // A restore to a version after the feed's commit keeps the rows; a restore by time does not name a version.
            return !version.matches("\\d+") || Long.parseLong(version) <= base;
        }
        return REPLACES.contains(info.operation());
    }
}
