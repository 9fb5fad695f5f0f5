package io.lakefeed.delta;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.DomainMetadata;
import scala.jdk.javaapi.CollectionConverters;

/** The newest entry of a feed's ledger, which a table's log has as metadata of the domain {@code lakefeed.<feed>}. */
final class Ledger {
    /** The ledger of a feed without an entry. */
    static final Ledger EMPTY = new Ledger(0, -1, null);

    private static final ObjectMapper JSON = new ObjectMapper();

    /** The number of the newest entry; 0 if the feed has none. */
    final int number;

    /** The version that has added the newest entry: a commit lands right after the version that it is based on. */
    final long version;

    /** The entry's text; null if the feed has none. */
    final String entry;

    Ledger(int number, long version, String entry) {
        this.number = number;
        this.version = version;
        this.entry = entry;
    }

    static String domain(String feed) {
        return "lakefeed." + feed;
    }

    /** Reads the state of a version; this reads the log back to its newest checkpoint. */
    static Ledger of(Snapshot snapshot, String feed) {
        for (DomainMetadata each : CollectionConverters.asJava(snapshot.domainMetadata())) {
            Ledger found = in(each, feed);
            if (found != null) {
                return found;
            }
        }
        return EMPTY;
    }

    /** Returns the entry that an action adds; null if it adds no entry of the feed. */
    static Ledger in(Action action, String feed) {
        if (!(action instanceof DomainMetadata each)
                || each.removed()
                || !each.domain().equals(domain(feed))) {
            return null;
        }
        JsonNode stored = parsed(each.configuration());
        return new Ledger(
                stored.path("number").asInt(),
                stored.path("base").asLong() + 1,
                stored.path("entry").toString());
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
}
