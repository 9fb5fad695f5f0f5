package io.lakefeed.commit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.lakefeed.dashboard.TableView;
import java.util.List;
import org.apache.iceberg.TableMetadata;
import org.junit.jupiter.api.Test;

class RecentTablesTest {
    private static final List<String> SUMMARY = List.of("lakefeed.batch-id", "added-records");

    @Test
    void aTableThatWasNotLoadedIsUnknown() throws Exception {
        assertNull(TableView.describe("lake.a.never", 10, 10, SUMMARY));
    }

    @Test
    void theNewestSnapshotsAreDescribedWithoutTheirRanges() throws Exception {
        TableMetadata table = Tables.empty();
        for (long id = 1; id <= 60; id++) {
            table = Tables.commit(table, id, "A " + id + " " + (id + 1), "added-records", "7", "lakefeed.batch-id", "" + id);
        }
        RecentTables.put("lake.a.t", table);
        JsonNode found = new ObjectMapper().readTree(TableView.describe("lake.a.t", 50, 10, SUMMARY));
        assertEquals(60, found.get("snapshot-count").asInt());
        assertEquals(50, found.get("snapshots").size());
        assertEquals(60, found.get("current-snapshot").get("snapshot-id").asLong());
        JsonNode last = found.get("snapshots").get(49).get("summary");
        assertEquals("60", last.get("lakefeed.batch-id").asText());
        assertEquals("7", last.get("added-records").asText());
        assertFalse(last.has(Ledger.RANGES));
        JsonNode schema = found.get("schemas").get(0);
        assertEquals("x", schema.get("fields").get(0).get("name").asText());
        assertTrue(schema.has("first-ms"));
    }

    @Test
    void aTableWithoutSnapshotsHasNoCurrentSnapshot() throws Exception {
        RecentTables.put("lake.a.empty", Tables.empty());
        JsonNode found = new ObjectMapper().readTree(TableView.describe("lake.a.empty", 50, 10, SUMMARY));
        assertFalse(found.has("current-snapshot"));
        assertEquals(0, found.get("snapshots").size());
    }
}
