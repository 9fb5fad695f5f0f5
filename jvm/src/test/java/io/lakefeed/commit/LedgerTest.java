package io.lakefeed.commit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakefeed.Json;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.TableMetadata;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class LedgerTest {
    /**
     * Returns the faults of a commit with these ranges and this summary; the commit before it has the ranges {@code
     * last}.
     */
    private static List<String> faults(String last, String ranges, String... more) {
        Map<String, String> summary = new HashMap<>(Map.of(Ledger.RANGES, Tables.ranges(ranges)));
        for (int at = 0; at < more.length; at += 2) {
            summary.put(more[at], Json.quoted(more[at + 1]));
        }
        return Ledger.faults(Json.of(Tables.ranges(last)), summary);
    }

    @Nested
    class Continuity {
        @ParameterizedTest(name = "{1} after {0}: {2}")
        @CsvSource(nullValues = "none", value = {
            "A 0 5, A 5 9, none",
            "A 0 5, A 5 5, none", // an empty batch
            "A 0 5 0 7, A 5 9 7 7, none",
            "A 0 5, A 5 9 0 3, none", // a new partition
            "A 0 5, A 6 9, 't-0 begins at 6, the table ends at 5'", // a gap
            "A 0 5, A 4 9, 't-0 begins at 4, the table ends at 5'", // a duplicate
            "A 0 5, A 0 5, 't-0 begins at 0, the table ends at 5'", // the same range again
            "A 0 5 0 7, A 5 9 8 9, 't-1 begins at 8, the table ends at 7'",
            "A 0 5 0 7, A 5 9, t-1 is in the table but not in the batch",
            "A 0 5, B 5 9, 'topic t was recreated (id B, was A)'",
            "'A 0 5', ' 5 9', none", // an unknown id is not taken for a new topic
        })
        void aCommitMustBeginWhereTheLastCommitEnded(String last, String next, String fault) {
            assertEquals(fault == null ? List.of() : List.of(fault), faults(last, next));
        }

        @ParameterizedTest(name = "{1} after {0}: {2}")
        @CsvSource(nullValues = "none", value = {
            "A 0 5, A 8 9, none", // skips a batch
            "A 0 5, A 5 9, none",
            "A 0 5 0 7, A 5 9, none", // skips a partition
            "A 0 5, A 4 9, 't-0 begins at 4, the table ends at 5'",
        })
        void aSparseFeedCanSkipBatchesButNotRepeatThem(String last, String next, String fault) {
            assertEquals(fault == null ? List.of() : List.of(fault), faults(last, next, Ledger.CONTINUITY, "sparse"));
        }

        @ParameterizedTest(name = "from {1} to {2} after {0}: {3}")
        @CsvSource(nullValues = "none", value = {
            "A 0 5, A 5 2, A 2 2, none", // the feed moves back
            "A 0 5, A 5 9, A 9 9, none", // the feed moves ahead
            "A 0 5, A 4 2, A 2 2, 't-0 is to be moved from 4, the table ends at 5'",
            "A 0 5, A 5 2, A 3 3, 't-0 is to be moved to 2 and begins at 3'",
            "A 0 5, A 5 0, B 0 0, none", // the feed moves to a recreated topic
            "A 0 5, B 5 0, B 0 0, 'topic t was recreated (id B, was A)'",
        })
        void bothPositionsOfAMoveAreChecked(String last, String positions, String next, String fault) {
            List<String> found = faults(last, next, Ledger.MOVED, Tables.moved(positions));
            assertEquals(fault == null ? List.of() : List.of(fault), found);
        }

        @Test
        void aRecreatedTopicCanHaveFewerPartitions() {
            assertEquals(List.of(), faults("A 0 5 0 7", "B 0 0", Ledger.MOVED, Tables.moved("A 5 0")));
        }

        @Test
        void allFaultsAreReported() {
            assertEquals(2, faults("A 0 5 0 7", "A 6 9 8 9").size());
        }
    }

    @Nested
    class SequenceNumbers {
        private static final String BEFORE = "{'t':{'id':'A','ranges':{'0':[0,5]},'marks':{'0':['m0','m5']}}}";

        @ParameterizedTest(name = "{0}: {1}")
        @CsvSource(nullValues = "none", value = {
            "m5, none",
            "m6, 't-0 begins after m6, the table ends at m5'",
        })
        void sequenceNumbersMustContinue(String begins, String fault) {
            String ranges = "{'t':{'id':'A','ranges':{'0':[5,9]},'marks':{'0':['" + begins + "','m9']}}}";
            List<String> found = Ledger.faults(Json.of(BEFORE), Map.of(Ledger.RANGES, Json.quoted(ranges)));
            assertEquals(fault == null ? List.of() : List.of(fault), found);
        }

        @Test
        void sequenceNumbersMayBeMissing() {
            assertEquals(List.of(), Ledger.faults(Json.of(BEFORE), Map.of(Ledger.RANGES, Tables.ranges("A 5 9"))));
        }
    }

    @ParameterizedTest(name = "{1} before {0}: {2}")
    @CsvSource(nullValues = "none", value = {
        "A 0 9, A 3 9, none",
        "A 0 9, A 3 10, 't-0 up to 10, it is at 9'",
        "A 0 9, B 3 5, 't-0 up to 5, it is at 9'", // offsets of a topic with a new id
        "A 0 9, A 0 3 0 4, 't-1 up to 4, it is at 0'", // a partition that the feed has not read
    })
    void aBackfillMustEndBeforeTheFeedsPosition(String position, String ranges, String ahead) {
        assertEquals(
                ahead == null ? List.of() : List.of(ahead),
                Ledger.ahead(Json.of(Tables.ranges(position)), Json.of(Tables.ranges(ranges))));
    }

    @ParameterizedTest
    @ValueSource(strings = {"{", "no json", "{'t': }"})
    void rangesThatAreNoJsonAreRefused(String text) {
        BatchRefused refused = assertThrows(BatchRefused.class, () -> Ledger.parsed(text));
        assertTrue(refused.getMessage().startsWith(BatchRefused.PREFIX), refused.getMessage());
    }

    @Test
    void aCommitWithoutRangesIsRefused() {
        assertThrows(BatchRefused.class, () -> Ledger.parsed(null));
    }

    @Test
    void aMoveFromAnUnknownPositionIsRecognised() {
        assertTrue(Ledger.movesFromUnknown(Map.of(Ledger.MOVED, "{\"unknown\":true}")));
        assertFalse(Ledger.movesFromUnknown(Map.of(Ledger.MOVED, Json.quoted(Tables.moved("A 5 2")))));
        assertFalse(Ledger.movesFromUnknown(Map.of()));
        assertTrue(Ledger.positions(Map.of()).isMissingNode());
    }

    @Nested
    class NewestCommit {
        private final TableMetadata two =
                Tables.commit(Tables.commit(Tables.empty(), 1, "A 0 5"), 2, "A 5 9");

        @Test
        void theNewestCommitIsFoundByItsFeed() {
            TableMetadata table = Tables.add(two, 3, Ledger.FEED, "other", Ledger.RANGES, Tables.ranges("A 0 1"));
            assertEquals(2, Ledger.newest(table, 3L, Tables.FEED).snapshotId());
            assertEquals(3, Ledger.newest(table, 3L, "other").snapshotId());
            assertNull(Ledger.newest(table, 3L, "third"));
        }

        @Test
        void theNewestCommitIsSearchedFromAGivenSnapshot() {
            assertEquals(1, Ledger.newest(two, 1L, Tables.FEED).snapshotId());
            assertNull(Ledger.newest(two, null, Tables.FEED));
            assertNull(Ledger.newest(Tables.empty(), null, Tables.FEED));
        }

        @Test
        void backfillsAndSnapshotsWithoutRangesAreNotTheNewestCommit() {
            TableMetadata table = Tables.backfill(Tables.add(two, 3, Ledger.FEED, Tables.FEED), 4, "A 0 1");
            assertEquals(2, Ledger.newest(table, 4L, Tables.FEED).snapshotId());
        }

        @Test
        void theNewestCommitIsReadFromThePropertyIfItsSnapshotHasExpired() {
            String position = "{'commit-id':'c2','snapshot-id':2,'sequence-number':2,'ranges':" + Tables.ranges("A 5 9") + "}";
            TableMetadata table = Tables.expire(
                    Tables.add(Tables.set(two, Ledger.POSITION + Tables.FEED, position), 3), 1, 2);
            Ledger.Commit last = Ledger.last(table, 3L, Tables.FEED);
            assertEquals("c2", last.commitId());
            assertEquals(Json.of(Tables.ranges("A 5 9")), last.ranges());
            assertFalse(last.moved());
        }

        @Test
        void aNewFeedHasNoNewestCommit() {
            assertNull(Ledger.last(two, 2L, "new"));
        }

        @ParameterizedTest
        @ValueSource(strings = {
            Ledger.ROLLED_BACK,
            "{'commit-id':'c9','snapshot-id':9,'sequence-number':9,'ranges':{}}",
        })
        void theNewestCommitIsUnknownAfterARollbackToBeforeIt(String position) {
            TableMetadata table = Tables.add(Tables.empty(Ledger.POSITION + Tables.FEED, position), 1);
            BatchRefused refused = assertThrows(BatchRefused.class, () -> Ledger.last(table, 1L, Tables.FEED));
            assertTrue(refused.getMessage().contains("rolled back"), refused.getMessage());
        }
    }

    @Nested
    class Ancestry {
        private final TableMetadata line =
                Tables.add(Tables.add(Tables.add(Tables.add(Tables.empty(), 1), 2), 3), 4);

        @Test
        void aSnapshotDescendsFromItsAncestors() {
            assertTrue(Ledger.descends(line, 4L, 2, 2));
            assertTrue(Ledger.descends(line, 4L, 4, 4));
            assertFalse(Ledger.descends(line, 2L, 4, 4));
            assertFalse(Ledger.descends(line, null, 2, 2));
        }

        @Test
        void theSequenceNumberDecidesWhetherAnAncestorHasExpired() {
            TableMetadata expired = Tables.expire(line, 1, 2);
            assertTrue(Ledger.descends(expired, 4L, 2, 2));
            assertTrue(Ledger.mayDescendFrom(expired, 4L, 2));
            assertFalse(Ledger.mayDescendFrom(expired, 4L, 3), "it would be in the line");
            assertFalse(Ledger.descends(expired, 4L, 9, 9));
        }

        @Test
        void aSnapshotWithAllItsAncestorsHasNoExpiredAncestor() {
            assertFalse(Ledger.mayDescendFrom(line, 4L, 0));
            assertFalse(Ledger.mayDescendFrom(line, null, 0));
        }

        @Test
        void snapshotsThatARollbackLeftBehindAreNotAncestors() {
            TableMetadata table = Tables.add(Tables.rollBack(line, 2), 5);
            assertTrue(Ledger.descends(table, 5L, 2, 2));
            assertFalse(Ledger.descends(table, 5L, 3, 3));
        }
    }

    @Test
    void aRetryOfACommitHasTheSameIdAndRanges() {
        Ledger.Commit commit = new Ledger.Commit("c", 1, 1, Json.of(Tables.ranges("A 0 5")), false);
        assertTrue(commit.is(new Ledger.Commit("c", 2, 2, Json.of(Tables.ranges("A 0 5")), false)));
        assertFalse(commit.is(new Ledger.Commit("d", 1, 1, Json.of(Tables.ranges("A 0 5")), false)));
        assertFalse(commit.is(new Ledger.Commit("c", 1, 1, Json.of(Tables.ranges("A 0 6")), false)), "another run's batch");
        Ledger.Commit unnamed = new Ledger.Commit(null, 1, 1, Json.of(Tables.ranges("A 0 5")), false);
        assertFalse(unnamed.is(unnamed));
    }
}
