package io.lakefeed.commit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakefeed.Json;
import org.apache.iceberg.TableMetadata;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;

class PositionTest {
    private static final String PROPERTY = Ledger.POSITION + Tables.FEED;

    /** Returns the table with the position after its current snapshot in the property. */
    private static TableMetadata recorded(TableMetadata table) {
        String before = table.properties().get(PROPERTY);
        Position position = Position.after(
                before == null || before.equals(Ledger.ROLLED_BACK) ? null : Position.ofJson(before),
                table.currentSnapshot(),
                Tables.FEED);
        return Tables.set(table, PROPERTY, position.toJson());
    }

    private static TableMetadata commit(TableMetadata table, long id, String ranges, String... summary) {
        return recorded(Tables.commit(table, id, ranges, summary));
    }

    private static TableMetadata backfill(TableMetadata table, long id, String ranges) {
        return recorded(Tables.backfill(table, id, ranges));
    }

    private static Position position(TableMetadata table) {
        return Position.of(table, Tables.head(table), Tables.FEED);
    }

    private static String covered(Position position) {
        return position.covered() == null ? null : Tables.offsets(position.covered());
    }

    private static String kept(Position position) {
        return Tables.offsets(position.kept());
    }

    private static String deleting(String positions) {
        return Tables.moved(positions).replaceFirst("}$", ",'deleted':{'t':{'0':5}}}");
    }

    @Nested
    class OfRowsThatWereKept {
        private final TableMetadata rewound =
                commit(commit(Tables.empty(), 1, "A 0 9"), 2, "A 4 4", Ledger.MOVED, Tables.moved("A 9 4"));

        @Test
        void keptRowsAreKnownAfterTheSnapshotOfTheMoveHasExpired() {
            assertEquals("4 9", kept(position(rewound)));
            TableMetadata table = commit(commit(rewound, 3, "A 4 7"), 4, "A 7 8");
            assertEquals("4 9", kept(position(Tables.expire(table, 1, 2, 3))));
            assertEquals("4 9", kept(position(commit(Tables.expire(table, 1, 2, 3), 5, "A 8 9"))));
        }

        @Test
        void keptRowsAreForgottenWhenALaterMoveDeletesThem() {
            TableMetadata table = commit(commit(rewound, 3, "A 4 8"), 4, "A 6 6", Ledger.MOVED, deleting("A 8 6"));
            assertEquals("4 6 8 9", kept(position(table)));
            assertEquals("4 6 8 9", kept(position(Tables.expire(commit(table, 5, "A 6 7"), 1, 2, 3, 4))));
        }

        @Test
        void keptRowsAreForgottenWhenAMoveLeavesTheirTopic() {
            assertEquals("", kept(position(commit(rewound, 3, "B 0 0", Ledger.MOVED, Tables.moved("A 4 0")))));
        }

        @Test
        void keptRowsAreReadFromSnapshotsIfAnOlderVersionWroteThePosition() {
            TableMetadata old = Tables.set(rewound, PROPERTY, without("kept", rewound.properties().get(PROPERTY)));
            assertEquals("4 9", kept(position(old)));
            assertEquals("4 9", kept(Position.ofJson(position(commit(old, 3, "A 4 5")).toJson())));
        }

        @Test
        void aRollbackRestoresWhichRowsWereKept() {
            assertEquals("", kept(rolledBack(rewound, 1)));
            TableMetadata deleted = commit(commit(rewound, 3, "A 4 8"), 4, "A 6 6", Ledger.MOVED, deleting("A 8 6"));
            assertEquals("4 9", kept(rolledBack(deleted, 3)));
        }

        @Test
        void aRollbackRestoresKeptRowsEvenIfTheSnapshotOfTheMoveHasExpired() {
            TableMetadata deleted = commit(commit(rewound, 3, "A 4 8"), 4, "A 6 6", Ledger.MOVED, deleting("A 8 6"));
            assertEquals("4 9", kept(rolledBack(Tables.expire(deleted, 1, 2), 3)));
        }

        @Test
        void aPositionWithoutKeptRowsHasNoKeyForKeptRows() {
            assertFalse(Json.of(position(commit(Tables.empty(), 1, "A 0 9")).toJson()).has("kept"));
        }

        private static Position rolledBack(TableMetadata base, long to) {
            return Position.ofJson(Position.afterMove(base, Tables.rollBack(base, to), Tables.FEED));
        }

        private static String without(String key, String json) {
            return ((ObjectNode) Json.of(json)).without(key).toString();
        }
    }

    @Nested
    class AfterASnapshot {
        @Test
        void theFirstCommitCoversItsRange() {
            Position position = position(commit(Tables.empty(), 1, "A 3 7"));
            assertEquals("c1", position.commit().commitId());
            assertEquals("3 7", covered(position));
            assertEquals(1, position.at());
            assertEquals(1, position.sequence());
        }

        @Test
        void adjacentCommitsBecomeOneInterval() {
            assertEquals("0 9", covered(position(commit(commit(Tables.empty(), 1, "A 0 5"), 2, "A 5 9"))));
        }

        @Test
        void aBackfillAddsOffsetsAndKeepsTheLastCommit() {
            Position position = position(backfill(commit(Tables.empty(), 1, "A 5 9"), 2, "A 0 3"));
            assertEquals("c1", position.commit().commitId());
            assertEquals("0 3 5 9", covered(position));
            assertEquals(2, position.at());
        }

        @Test
        void aMoveBackUncoversTheRecordsThatAreReadAgain() {
            TableMetadata table = commit(Tables.empty(), 1, "A 0 9");
            Position position = position(commit(table, 2, "A 4 4", Ledger.MOVED, Tables.moved("A 9 4")));
            assertEquals("0 4", covered(position));
            assertTrue(position.commit().moved());
        }

        @Test
        void aMoveForwardLeavesAGap() {
            TableMetadata table = commit(Tables.empty(), 1, "A 0 4");
            table = commit(table, 2, "A 7 7", Ledger.MOVED, Tables.moved("A 4 7"));
            assertEquals("0 4", covered(position(table)));
            assertEquals("0 4 7 9", covered(position(commit(table, 3, "A 7 9"))));
        }

        @Test
        void aMoveToARecreatedTopicForgetsTheOldOffsets() {
            TableMetadata table = commit(Tables.empty(), 1, "A 0 9");
            table = commit(table, 2, "B 0 0", Ledger.MOVED, Tables.moved("A 9 0"));
            assertEquals("", covered(position(table)));
            assertEquals("0 3", covered(position(commit(table, 3, "B 0 3"))));
        }

        @Test
        void aCommitThatSkipsOffsetsMakesTheCoveredOffsetsUnknown() {
            assertNull(covered(position(commit(Tables.empty(), 1, "A 0 9", Ledger.CONTINUITY, "sparse"))));
        }

        @Test
        void aMoveFromAnUnknownPositionMakesTheCoveredOffsetsUnknown() {
            TableMetadata table = commit(Tables.empty(), 1, "A 0 9");
            table = commit(table, 2, "A 4 4", Ledger.MOVED, "{'unknown':true}");
            assertNull(covered(position(table)));
            assertNull(covered(position(commit(table, 3, "A 4 5"))), "unknown stays unknown");
        }

        @Test
        void theNextPositionLeavesThePreviousPositionUnchanged() {
            Position before = position(commit(Tables.empty(), 1, "A 0 5"));
            Position.after(before, Tables.commit(Tables.empty(), 2, "A 5 9").currentSnapshot(), Tables.FEED);
            assertEquals("0 5", covered(before));
        }
    }

    @Nested
    class Recorded {
        @Test
        void aWrittenPositionIsReadBack() {
            String json = position(backfill(commit(Tables.empty(), 1, "A 5 9"), 2, "A 0 3")).toJson();
            assertEquals(json, Position.ofJson(json).toJson());
        }

        @Test
        void aPositionWithUnknownCoverageHasNoKeysForTheCoverage() {
            JsonNode json = Json.of(position(commit(Tables.empty(), 1, "A 0 9", Ledger.CONTINUITY, "sparse")).toJson());
            assertFalse(json.has("covered"));
            assertFalse(json.has("covered-at"));
        }

        @Test
        void anEmptyBatchIsNotAMove() {
            String ranges = "{'commit-id':'c','snapshot-id':1,'sequence-number':1,'ranges':" + Tables.ranges("A 5 5");
            assertFalse(Position.ofJson(Json.quoted(ranges + ",'moved':false}")).commit().moved());
            assertTrue(Position.ofJson(Json.quoted(ranges + ",'moved':true}")).commit().moved());
        }
    }

    @Nested
    class OfATable {
        private final TableMetadata table =
                commit(commit(commit(Tables.empty(), 1, "A 0 3"), 2, "A 3 6"), 3, "A 6 9");

        @Test
        void aTableWithoutCommitsHasNoPosition() {
            assertNull(position(Tables.empty()));
            assertNull(position(Tables.add(Tables.empty(), 1)));
        }

        @Test
        void thePropertyIsTrustedIfOtherWritersHaveCommittedSince() {
            assertEquals("0 9", covered(position(Tables.add(Tables.add(table, 4), 5))));
        }

        @Test
        void thePropertyIsTrustedIfItsSnapshotHasExpired() {
            TableMetadata expired = Tables.expire(Tables.add(Tables.add(table, 4), 5), 1, 2, 3);
            assertEquals("0 9", covered(position(expired)));
            assertEquals("c3", position(expired).commit().commitId());
        }

        @Test
        void thePropertyOfACommitThatARollbackRemovedIsNotTrusted() {
            Position position = position(Tables.rollBack(table, 2));
            assertEquals("c2", position.commit().commitId());
            assertNull(covered(position));
        }

        @Test
        void thePropertyOfABackfillThatARollbackRemovedIsNotTrusted() {
            TableMetadata table = backfill(commit(Tables.empty(), 1, "A 5 9"), 2, "A 0 3");
            Position position = position(Tables.rollBack(table, 1));
            assertEquals("c1", position.commit().commitId());
            assertNull(covered(position));
        }

        @Test
        void theCoverageAtAnOlderSnapshotIsUnknown() {
            Position position = Position.of(table, 1L, Tables.FEED);
            assertEquals("c1", position.commit().commitId());
            assertNull(covered(position));
        }
    }

    @Nested
    class AfterARollback {
        private static String afterMove(TableMetadata base, TableMetadata changed) {
            return Position.afterMove(base, changed, Tables.FEED);
        }

        @Test
        void aRollbackUncoversTheCommitsThatItRemoves() {
            TableMetadata base = commit(commit(commit(Tables.empty(), 1, "A 0 3"), 2, "A 3 6"), 3, "A 6 9");
            Position position = Position.ofJson(afterMove(base, Tables.rollBack(base, 1)));
            assertEquals("c1", position.commit().commitId());
            assertEquals("0 3", covered(position));
            assertEquals(1, position.at());
        }

        @Test
        void aRollbackUncoversABackfillThatItRemoves() {
            TableMetadata base = backfill(commit(Tables.empty(), 1, "A 5 9"), 2, "A 0 3");
            assertEquals("5 9", covered(Position.ofJson(afterMove(base, Tables.rollBack(base, 1)))));
        }

        @Test
        void aRollbackOfAMoveCoversTheOffsetsThatTheMoveUncovered() {
            TableMetadata base = commit(Tables.empty(), 1, "A 0 9");
            base = commit(base, 2, "A 4 4", Ledger.MOVED, Tables.moved("A 9 4"));
            assertEquals("0 9", covered(Position.ofJson(afterMove(base, Tables.rollBack(base, 1)))));
        }

        @Test
        void aRollbackOfAMoveToAnotherTopicMakesTheCoverageUnknown() {
            TableMetadata base = commit(Tables.empty(), 1, "A 0 9");
            base = commit(base, 2, "B 0 0", Ledger.MOVED, Tables.moved("A 9 0"));
            assertNull(covered(Position.ofJson(afterMove(base, Tables.rollBack(base, 1)))));
        }

        @Test
        void aRollbackToBeforeAllCommitsMakesThePositionUnknown() {
            TableMetadata base = commit(Tables.add(Tables.empty(), 1), 2, "A 0 3");
            assertEquals(Ledger.ROLLED_BACK, afterMove(base, Tables.rollBack(base, 1)));
        }

        @Test
        void theUndoOfARollbackCoversAllOffsetsAgain() {
            TableMetadata base = commit(commit(Tables.empty(), 1, "A 0 3"), 2, "A 3 6");
            TableMetadata back = Tables.set(Tables.rollBack(base, 1), PROPERTY, afterMove(base, Tables.rollBack(base, 1)));
            TableMetadata again = Tables.rollBack(back, 2);
            Position position = Position.ofJson(afterMove(back, again));
            assertEquals("c2", position.commit().commitId());
            assertEquals("0 6", covered(position));
        }

        @Test
        void aRollbackOfAnotherFeedsCommitChangesNothing() {
            TableMetadata base = commit(Tables.empty(), 1, "A 0 3");
            base = Tables.add(base, 2, Ledger.FEED, "other", Ledger.RANGES, Tables.ranges("A 0 99"));
            assertEquals("0 3", covered(Position.ofJson(afterMove(base, Tables.rollBack(base, 1)))));
        }
    }
}
