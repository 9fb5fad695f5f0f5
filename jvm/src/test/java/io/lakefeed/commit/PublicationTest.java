package io.lakefeed.commit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import java.util.function.UnaryOperator;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.TableMetadata;
import org.junit.jupiter.api.Test;

class PublicationTest {
    private static final String BRANCH = Ledger.BRANCH + Tables.FEED;
    private static final String POSITION = Ledger.POSITION + Tables.FEED;

    private final Store store = new Store();
    private final CheckedOperations operations = new CheckedOperations(store, "lake.a.t");
    private final BaseTable table = new BaseTable(operations, "lake.a.t");

    /** Commits the snapshot of {@code change} to the feed's branch. */
    private void land(UnaryOperator<TableMetadata> change) {
        operations.commit(store.current, Tables.inBranch(store.current, "staging", change));
    }

    private void begin() {
        operations.commit(store.current, Tables.commit(store.current, 1, "A 0 10"));
        operations.commit(store.current, Tables.branch(store.current, "staging", 1));
        operations.commit(store.current, Tables.set(store.current, BRANCH, "staging"));
    }

    private long main() {
        return store.current.currentSnapshot().snapshotId();
    }

    @Test
    void publishingMovesMainToTheFeedsBranch() {
        begin();
        land(at -> Tables.commit(at, 2, "A 10 20"));
        assertEquals("ahead", Publication.state(table, Tables.FEED));
        assertEquals(1, main());
        assertEquals("ahead", Publication.publish(table, 2, Map.of("audited", "yes")));
        assertEquals(2, main());
        assertEquals("yes", store.current.properties().get("audited"));
        assertEquals("published", Publication.state(table, Tables.FEED));
    }

    @Test
    void aSecondPublicationChangesNothing() {
        begin();
        land(at -> Tables.commit(at, 2, "A 10 20"));
        Publication.publish(table, 2, Map.of());
        int commits = store.commits;
        assertEquals("published", Publication.publish(table, 2, Map.of()));
        assertEquals(commits, store.commits);
    }

    @Test
    void onlyTheAuditedSnapshotIsPublished() {
        begin();
        land(at -> Tables.commit(at, 2, "A 10 20"));
        land(at -> Tables.commit(at, 3, "A 20 30"));
        Publication.publish(table, 2, Map.of());
        assertEquals(2, main());
        assertEquals("ahead", Publication.state(table, Tables.FEED));
    }

    @Test
    void rowsOfAnotherWriterInMainAreNeverLost() {
        begin();
        land(at -> Tables.commit(at, 2, "A 10 20"));
        operations.commit(store.current, Tables.add(store.current, 3));
        assertEquals("diverged", Publication.state(table, Tables.FEED));
        assertEquals("diverged", Publication.publish(table, 2, Map.of()));
        assertEquals(3, main());
    }

    @Test
    void anotherWritersCommitBetweenTheCheckAndTheSwapIsNoticed() {
        begin();
        land(at -> Tables.commit(at, 2, "A 10 20"));
        store.meanwhile = () -> store.current = Tables.add(store.current, 3);
        assertEquals("diverged", Publication.publish(table, 2, Map.of()));
        assertEquals(3, main());
    }

    @Test
    void aBatchThatIsCommittedDuringAPublicationDoesNotDisturbIt() {
        begin();
        land(at -> Tables.commit(at, 2, "A 10 20"));
        store.meanwhile = () ->
                store.current = Tables.inBranch(store.current, "staging", at -> Tables.commit(at, 3, "A 20 30"));
        assertEquals("ahead", Publication.publish(table, 2, Map.of()));
        assertEquals(2, main());
        assertEquals(3, store.current.ref("staging").snapshotId());
    }

    @Test
    void aCommitOfTheFeedInAnotherBranchIsRefused() {
        begin();
        TableMetadata before = store.current;
        BatchRefused refused = assertThrows(
                BatchRefused.class, () -> operations.commit(before, Tables.commit(before, 2, "A 10 20")));
        assertTrue(refused.getMessage().contains("lands in the branch staging"), refused.getMessage());
    }

    @Test
    void thePositionFollowsTheBranch() {
        begin();
        land(at -> Tables.commit(at, 2, "A 10 20"));
        assertEquals(2, Position.ofJson(store.current.properties().get(POSITION)).commit().snapshotId());
        // If another writer rolls main back, the branch and the feed's position do not change.
        operations.commit(store.current, Tables.add(store.current, 3));
        operations.commit(store.current, Tables.rollBack(store.current, 1));
        assertEquals(2, Position.ofJson(store.current.properties().get(POSITION)).commit().snapshotId());
        Publication.discard(table, Tables.FEED);
        Position now = Position.ofJson(store.current.properties().get(POSITION));
        assertEquals(1, now.commit().snapshotId());
        assertEquals("{\"t\":{\"id\":\"A\",\"offsets\":{\"0\":[0,10]}}}", now.covered().toJson().toString());
        land(at -> Tables.commit(at, 4, "A 10 25"));
        assertEquals(4, store.current.ref("staging").snapshotId());
    }

    @Test
    void aFeedWithoutACommitInMainHasPublishedNothing() {
        operations.commit(store.current, Tables.add(store.current, 1));
        operations.commit(store.current, Tables.branch(store.current, "staging", 1));
        operations.commit(store.current, Tables.set(store.current, BRANCH, "staging"));
        land(at -> Tables.commit(at, 2, "A 0 10"));
        assertFalse(Publication.hasPublished(table, Tables.FEED));
        Publication.publish(table, 2, Map.of());
        assertTrue(Publication.hasPublished(table, Tables.FEED));
    }

    @Test
    void aTableIsPublishedAlthoughMainHasNoSnapshot() {
        operations.commit(store.current, Tables.set(store.current, BRANCH, "staging"));
        land(at -> Tables.commit(at, 1, "A 0 10"));
        assertNull(store.current.currentSnapshot());
        assertEquals("ahead", Publication.publish(table, 1, Map.of()));
        assertEquals(1, main());
        assertEquals(1, store.current.ref(SnapshotRef.MAIN_BRANCH).snapshotId());
    }

    @Test
    void aRemovedBranchIsReportedAsMissing() {
        begin();
        operations.commit(store.current, Tables.withoutBranch(store.current, "staging"));
        assertEquals("missing", Publication.state(table, Tables.FEED));
    }
}
