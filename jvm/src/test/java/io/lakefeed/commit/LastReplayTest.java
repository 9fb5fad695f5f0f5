package io.lakefeed.commit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.apache.iceberg.TableMetadata;
import org.junit.jupiter.api.Test;

class LastReplayTest {
    private static TableMetadata replayed() {
        TableMetadata table = Tables.add(Tables.empty(), 1);
        table = Tables.add(table, 2, Ledger.REPLAY_OF, Tables.FEED, Ledger.REPLAY, "r");
        return Tables.set(table, LastReplay.PROPERTY + Tables.FEED, LastReplay.landedBy(table.currentSnapshot()).toString());
    }

    @Test
    void aWrittenReplayIsReadBack() {
        LastReplay replay = new LastReplay("a-b", 123, 4);
        assertEquals("a-b 123 4", replay.toString());
        assertEquals(replay, LastReplay.parsed(replay.toString()));
    }

    @Test
    void aReplayIsFoundByItsFeed() {
        assertEquals(new LastReplay("r", 2, 2), LastReplay.of(replayed(), Tables.FEED));
        assertNull(LastReplay.of(replayed(), "other"));
        assertNull(LastReplay.of(Tables.empty(), Tables.FEED));
    }

    @Test
    void aReplayIsKnownAfterItsSnapshotHasExpired() {
        TableMetadata table = Tables.expire(Tables.add(replayed(), 3), 1, 2);
        assertEquals("r", LastReplay.of(table, Tables.FEED).id());
    }

    @Test
    void aReplayIsUnknownAfterARollback() {
        assertNull(LastReplay.of(Tables.rollBack(replayed(), 1), Tables.FEED));
        assertNull(LastReplay.of(Tables.add(Tables.rollBack(replayed(), 1), 3), Tables.FEED));
    }

    @Test
    void aSnapshotWithoutAFeedOrAnIdIsNotAReplay() {
        assertNull(LastReplay.landedBy(Tables.add(Tables.empty(), 1, Ledger.REPLAY, "r").currentSnapshot()));
        assertNull(LastReplay.landedBy(Tables.add(Tables.empty(), 1, Ledger.REPLAY_OF, "f").currentSnapshot()));
    }
}
