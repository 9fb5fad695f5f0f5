package io.lakefeed.commit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.util.List;
import java.util.function.UnaryOperator;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.exceptions.BadRequestException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.exceptions.RESTException;
import org.apache.iceberg.exceptions.ValidationException;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class CheckedOperationsTest {
    private static final String POSITION = Ledger.POSITION + Tables.FEED;
    private static final String FENCE = Ledger.FENCES + Tables.FEED;

    private final Store store = new Store();
    private final CheckedOperations operations = new CheckedOperations(store, "lake.a.t");

    private void commit(UnaryOperator<TableMetadata> change) {
        operations.commit(store.current, change.apply(store.current));
    }

    private void refused(String reason, UnaryOperator<TableMetadata> change) {
        TableMetadata before = store.current;
        BatchRefused refused = assertThrows(BatchRefused.class, () -> commit(change));
        assertTrue(refused.getMessage().contains(reason), refused.getMessage());
        assertSame(before, store.current);
    }

    private String covered() {
        return Position.ofJson(store.current.properties().get(POSITION)).covered().toJson().toString();
    }

    private static String offsets(String bounds) {
        return "{\"t\":{\"id\":\"A\",\"offsets\":{\"0\":[" + bounds + "]}}}";
    }

    @Nested
    class Batches {
        @Test
        void batchesThatContinueTheFeedAreCommittedWithThePosition() {
            commit(table -> Tables.commit(table, 1, "A 0 5"));
            commit(table -> Tables.commit(table, 2, "A 5 9"));
            assertEquals(2, store.current.currentSnapshot().snapshotId());
            assertEquals("c2", Position.ofJson(store.current.properties().get(POSITION)).commit().commitId());
            assertEquals(offsets("0,9"), covered());
        }

        @ParameterizedTest(name = "{0}: {1}")
        @CsvSource({
            "A 6 9, begins at 6",
            "A 4 9, begins at 4",
            "A 0 5, begins at 0",
            "B 5 9, was recreated",
            "A 9 12 0 1, begins at 9",
        })
        void batchesThatDoNotContinueTheFeedAreRefused(String ranges, String reason) {
            commit(table -> Tables.commit(table, 1, "A 0 5"));
            refused(reason, table -> Tables.commit(table, 2, ranges));
        }

        @Test
        void aBatchIsComparedWithTheFeedsLastCommitEvenIfOtherWritersHaveCommittedSince() {
            commit(table -> Tables.commit(table, 1, "A 0 5"));
            commit(table -> Tables.add(table, 2));
            refused("begins at 0", table -> Tables.commit(table, 3, "A 0 5"));
            commit(table -> Tables.commit(table, 3, "A 5 9"));
            assertEquals(offsets("0,9"), covered());
        }

        @Test
        void aBatchIsComparedWithTheStoredPositionIfTheLastCommitHasExpired() {
            commit(table -> Tables.commit(table, 1, "A 0 5"));
            commit(table -> Tables.add(table, 2));
            commit(table -> Tables.expire(table, 1));
            refused("begins at 0", table -> Tables.commit(table, 3, "A 0 5"));
            commit(table -> Tables.commit(table, 3, "A 5 9"));
        }

        @ParameterizedTest(name = "{0} rows, expected {1}: {2}")
        @CsvSource({"3, 3, true", "3, 4, false", ", 0, true", ", 1, false"})
        void aBatchWithAnotherNumberOfRowsThanItDeclaresIsRefused(String added, String expected, boolean lands) {
            UnaryOperator<TableMetadata> change = table -> added == null
                    ? Tables.commit(table, 1, "A 0 5", Ledger.ROWS, expected)
                    : Tables.commit(table, 1, "A 0 5", Ledger.ROWS, expected, "added-records", added);
            if (lands) {
                commit(change);
            } else {
                refused("rows, and should have " + expected, change);
            }
        }

        @Test
        void batchesOfTwoFeedsAreCheckedSeparately() {
            commit(table -> Tables.commit(table, 1, "A 0 5"));
            commit(table -> Tables.add(table, 2, Ledger.FEED, "other", Ledger.COMMIT_ID, "o",
                    Ledger.RANGES, Tables.ranges("A 100 200")));
            assertEquals(offsets("0,5"), covered());
            commit(table -> Tables.commit(table, 3, "A 5 9"));
        }

        @Test
        void aCommitThatHasNoRangesIsNotChecked() {
            commit(table -> Tables.add(table, 1, Ledger.FEED, Tables.FEED));
            assertNull(store.current.properties().get(POSITION));
        }
    }

    @Nested
    class Takeovers {
        private static String after(String snapshot) {
            return "{'from':'group','place':'g','after':" + snapshot + "}";
        }

        private static UnaryOperator<TableMetadata> takeover(long id, String after) {
            return table -> Tables.commit(table, id, "A 7 7", Ledger.ADOPTED, after(after));
        }

        @Test
        void aTakeoverIsCommittedIfOnlyFencesFollowItsBaseSnapshot() {
            commit(table -> Tables.add(table, 1));
            commit(table -> Tables.add(table, 2, Ledger.TAKEN + Tables.FEED, "1 a"));
            commit(takeover(3, "1"));
            commit(table -> Tables.commit(table, 4, "A 7 9"));
            assertEquals(offsets("7,9"), covered());
        }

        @Test
        void aTakeoverIsCommittedToATableWithoutSnapshots() {
            commit(takeover(1, "null"));
            refused("begins at 0", table -> Tables.commit(table, 2, "A 0 9"));
        }

        @Test
        void aTakeoverIsRefusedAfterACommitOfTheOtherTool() {
            commit(table -> Tables.add(table, 1));
            commit(table -> Tables.add(table, 2));
            refused("snapshot 2 was committed after", takeover(3, "1"));
            refused("snapshot 2 was committed after", takeover(3, "null"));
            commit(takeover(3, "2"));
        }

        @Test
        void aTakeoverIsRefusedAfterARollback() {
            commit(table -> Tables.add(table, 1, Ledger.TAKEN + Tables.FEED, "1 a"));
            refused("was rolled back", takeover(3, "2"));
        }

        @Test
        void aTakeoverByAFeedThatHasCommittedIsRefused() {
            commit(table -> Tables.commit(table, 1, "A 0 7"));
            refused("so it cannot take the table over", takeover(2, "1"));
        }
    }

    @Nested
    class Moves {
        @Test
        void aMoveFromTheFeedsPositionIsCommitted() {
            commit(table -> Tables.commit(table, 1, "A 0 9"));
            commit(table -> Tables.commit(table, 2, "A 4 4", Ledger.MOVED, Tables.moved("A 9 4")));
            assertEquals(offsets("0,4"), covered());
            commit(table -> Tables.commit(table, 3, "A 4 6"));
        }

        @Test
        void aMoveThatDoesNotBeginAtTheFeedsPositionIsRefused() {
            commit(table -> Tables.commit(table, 1, "A 0 9"));
            refused("is to be moved from 8", table -> Tables.commit(table, 2, "A 4 4", Ledger.MOVED, Tables.moved("A 8 4")));
        }

        @Test
        void aMoveOfAFeedWithoutACommitIsRefused() {
            refused("no commit in the table", table -> Tables.commit(table, 1, "A 4 4", Ledger.MOVED, Tables.moved("A 9 4")));
        }

        @Test
        void aMoveFromAnUnknownPositionIsRefusedIfThePositionIsKnown() {
            commit(table -> Tables.commit(table, 1, "A 0 9"));
            refused("begins at 4", table -> Tables.commit(table, 2, "A 4 4", Ledger.MOVED, "{'unknown':true}"));
            store.current = Tables.add(Tables.empty(POSITION, Ledger.ROLLED_BACK), 1);
            refused("rolled back", table -> Tables.commit(table, 2, "A 4 9"));
            commit(table -> Tables.commit(table, 2, "A 4 4", Ledger.MOVED, "{'unknown':true}"));
            commit(table -> Tables.commit(table, 3, "A 4 6"));
        }
    }

    @Nested
    class Backfills {
        @Test
        void aBackfillOfOldRecordsIsCommitted() {
            commit(table -> Tables.commit(table, 1, "A 5 9"));
            commit(table -> Tables.backfill(table, 2, "A 0 3"));
            assertEquals(offsets("0,3,5,9"), covered());
            commit(table -> Tables.commit(table, 3, "A 9 12"));
        }

        @ParameterizedTest(name = "{0}: {1}")
        @CsvSource({
            "A 3 6, t-0 has [5",
            "A 12 15, will read these records itself",
            "B 0 3, will read these records itself",
        })
        void aBackfillOfCoveredOrFutureRecordsIsRefused(String ranges, String reason) {
            commit(table -> Tables.commit(table, 1, "A 5 9"));
            refused(reason, table -> Tables.backfill(table, 2, ranges));
        }

        @Test
        void aBackfillIsRefusedIfTheCoveredOffsetsAreUnknown() {
            refused("not known which records", table -> Tables.backfill(table, 1, "A 0 3"));
            commit(table -> Tables.commit(table, 1, "A 5 9", Ledger.CONTINUITY, "sparse"));
            refused("not known which records", table -> Tables.backfill(table, 2, "A 0 3"));
        }

        @Test
        void backfillsHaveASeparateFence() {
            commit(table -> Tables.commit(table, 1, "A 5 9"));
            commit(table -> Tables.set(table, FENCE + Ledger.BACKFILLS, "7 x"));
            refused("another driver has taken over", table -> Tables.backfill(table, 2, "A 0 3", Ledger.FENCE, "6 w"));
            commit(table -> Tables.backfill(table, 2, "A 0 3", Ledger.FENCE, "7 x"));
        }
    }

    @Nested
    class Fences {
        @Test
        void aDriverWithAnOlderFenceIsRefused() {
            commit(table -> Tables.set(table, FENCE, "1 a"));
            commit(table -> Tables.commit(table, 1, "A 0 5", Ledger.FENCE, "1 a"));
            commit(table -> Tables.set(table, FENCE, "2 b"));
            refused("its fence is 2 b, this driver's 1 a", table -> Tables.commit(table, 2, "A 5 9", Ledger.FENCE, "1 a"));
            refused("another driver", table -> Tables.commit(table, 2, "A 5 9"));
            commit(table -> Tables.commit(table, 2, "A 5 9", Ledger.FENCE, "2 b"));
        }

        @ParameterizedTest(name = "{1} after {0}: {2}")
        @CsvSource({"1 a, 2 b, true", "2 b, 2 b, true", "2 b, 2 c, false", "2 b, 1 a, false", "9 a, 10 b, true"})
        void aFenceOnlyRises(String before, String next, boolean taken) {
            commit(table -> Tables.set(table, FENCE, before));
            if (taken) {
                commit(table -> Tables.set(table, FENCE, next));
            } else {
                refused("is taken", table -> Tables.set(table, FENCE, next));
            }
        }

        @Test
        void replaysHaveASeparateFence() {
            commit(table -> Tables.set(table, FENCE, "5 a", FENCE + Ledger.REPLAYS, "7 x"));
            refused("another driver", table -> Tables.add(table, 1, Ledger.REPLAY_OF, Tables.FEED, Ledger.REPLAY, "r",
                    Ledger.FENCE, "5 a"));
            commit(table -> Tables.add(table, 1, Ledger.REPLAY_OF, Tables.FEED, Ledger.REPLAY, "r", Ledger.FENCE, "7 x"));
            assertEquals("r 1 1", store.current.properties().get(LastReplay.PROPERTY + Tables.FEED));
        }
    }

    @Nested
    class LostAnswers {
        @Test
        void aCommitThatSucceedsWithoutAnAnswerIsASuccess() {
            store.after = new CommitStateUnknownException(new RuntimeException("connection reset"));
            commit(table -> Tables.commit(table, 1, "A 0 5"));
            assertEquals(1, store.commits);
        }

        @Test
        void aCommitThatFailsWithoutAnAnswerIsAFailure() {
            store.before = new CommitStateUnknownException(new RuntimeException("connection reset"));
            assertThrows(CommitStateUnknownException.class, () -> commit(table -> Tables.commit(table, 1, "A 0 5")));
        }

        @Test
        void aRetryOfASuccessfulCommitChangesNothing() {
            commit(table -> Tables.commit(table, 1, "A 0 5"));
            // The retry commits the same batch in a new snapshot.
            commit(table -> Tables.add(table, 2, Ledger.FEED, Tables.FEED, Ledger.COMMIT_ID, "c1",
                    Ledger.RANGES, Tables.ranges("A 0 5")));
            assertEquals(1, store.commits);
            assertEquals(1, store.current.currentSnapshot().snapshotId());
        }

        @Test
        void aRetryDoesNotRollBackALaterCommitOfAnotherWriter() {
            TableMetadata base = store.current;
            TableMetadata mine = Tables.commit(base, 1, "A 0 5");
            store.before = new CommitFailedException("no answer");
            assertThrows(CommitFailedException.class, () -> operations.commit(base, mine));
            // The first commit has succeeded although its answer was lost, and another writer's commit follows.
            store.before = null;
            store.current = Tables.add(mine, 2);
            commit(table -> Tables.rollBack(table, 1));
            assertEquals(2, store.current.currentSnapshot().snapshotId());
        }

        private void overtaken(RuntimeException answer) {
            store.conflict = answer;
            store.meanwhile = () -> store.current = TableMetadata.buildFrom(Tables.add(store.current, 9))
                    .discardChanges()
                    .withMetadataLocation("s3://lake/table/metadata/9.json")
                    .build();
            commit(table -> Tables.commit(table, 1, "A 0 5"));
        }

        @Test
        void aConflictIsSentAgainWhateverTheCatalogAnswers() {
            for (RuntimeException answer : List.of(
                    new CommitFailedException("409"),
                    new BadRequestException("400"),
                    new RESTException("412"),
                    new CommitStateUnknownException(new RuntimeException("500")))) {
                store.current = Tables.empty();
                Exception failed = assertThrows(CommitFailedException.class, () -> overtaken(answer));
                assertSame(answer, failed.getCause());
                assertEquals(9, store.current.currentSnapshot().snapshotId());
            }
        }

        @Test
        void aRefusalWithoutAConflictKeepsItsError() {
            store.before = new BadRequestException("400");
            assertThrows(BadRequestException.class, () -> commit(table -> Tables.commit(table, 1, "A 0 5")));
        }

        @Test
        void aCommitThatConflictsOnlyWithItselfIsASuccess() {
            store.after = new CommitFailedException("the table has changed");
            commit(table -> Tables.commit(table, 1, "A 0 5"));
            assertEquals(1, store.current.currentSnapshot().snapshotId());
        }
    }

    @Nested
    class Rollbacks {
        @Test
        void aRollbackMovesThePositionBack() {
            commit(table -> Tables.commit(table, 1, "A 0 5"));
            commit(table -> Tables.commit(table, 2, "A 5 9"));
            commit(table -> Tables.rollBack(table, 1));
            assertEquals(offsets("0,5"), covered());
            commit(table -> Tables.commit(table, 3, "A 5 7"));
            assertEquals(offsets("0,7"), covered());
        }

        @Test
        void aRollbackToBeforeAllCommitsMarksThePositionAsUnknown() {
            commit(table -> Tables.add(table, 1));
            commit(table -> Tables.commit(table, 2, "A 0 5"));
            commit(table -> Tables.rollBack(table, 1));
            assertEquals(Ledger.ROLLED_BACK, store.current.properties().get(POSITION));
            refused("rolled back", table -> Tables.commit(table, 3, "A 5 9"));
        }

        @Test
        void entriesOfPlugInsFollowARollback() {
            String both = Ledger.KEPT + "both";
            String newer = Ledger.KEPT + "newer";
            commit(table -> Tables.commit(table, 1, "A 0 5", both, "one"));
            commit(table -> Tables.commit(table, 2, "A 5 9", both, "two", newer, "two"));
            assertEquals("two", store.current.properties().get(both));
            commit(table -> Tables.rollBack(table, 1));
            assertEquals("one", store.current.properties().get(both));
            assertEquals(Ledger.ROLLED_BACK, store.current.properties().get(newer));
        }

        @Test
        void aRollbackForgetsAReplayThatItUndoes() {
            commit(table -> Tables.commit(table, 1, "A 0 5"));
            commit(table -> Tables.add(table, 2, Ledger.REPLAY_OF, Tables.FEED, Ledger.REPLAY, "r"));
            assertEquals("r", LastReplay.of(store.current, Tables.FEED).id());
            commit(table -> Tables.rollBack(table, 1));
            assertFalse(store.current.properties().containsKey(LastReplay.PROPERTY + Tables.FEED));
        }
    }

    @Nested
    class QuietPeriods {
        private static final String LATER = "99999999999999";

        @Test
        void aPauseRefusesRewrites() {
            commit(table -> Tables.set(table, Quiet.PROPERTY, LATER));
            assertThrows(ValidationException.class, () -> commit(table -> Tables.addAs("replace", table, 1)));
            commit(table -> Tables.add(table, 1));
            assertTrue(store.current.properties().containsKey(Quiet.PROPERTY), "another writer's append does not end it");
        }

        @Test
        void aCommitOfAFeedEndsThePause() {
            commit(table -> Tables.set(table, Quiet.PROPERTY, LATER));
            commit(table -> Tables.commit(table, 1, "A 0 5"));
            assertFalse(store.current.properties().containsKey(Quiet.PROPERTY));
            commit(table -> Tables.addAs("replace", table, 2));
        }

        @Test
        void aPauseEndsAtTheTimeInTheProperty() {
            commit(table -> Tables.set(table, Quiet.PROPERTY, "1000"));
            commit(table -> Tables.addAs("replace", table, 1));
        }
    }

    /** If a default method were not overridden, its calls would not reach the catalog's operations. */
    @Test
    void eachMethodOfTheInterfaceIsOverridden() throws NoSuchMethodException {
        for (Method method : TableOperations.class.getMethods()) {
            assertSame(
                    CheckedOperations.class,
                    CheckedOperations.class.getMethod(method.getName(), method.getParameterTypes()).getDeclaringClass(),
                    method.toString());
        }
    }

    @Test
    void aCatalogOfUnknownTypeDoesNotCheckProperties() {
        assertFalse(operations.guardsProperties());
    }
}
