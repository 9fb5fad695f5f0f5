package io.lakefeed.commit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Constructor;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class OutcomesTest {
    private final Outcomes outcomes = new Outcomes();

    private static Outcomes.RangeOutcome range(String topic, int partition, long first, long records) {
        Outcomes.RangeOutcome range = new Outcomes.RangeOutcome(topic, partition, first);
        range.records = records;
        return range;
    }

    private static Outcomes.RangeOutcome broken(String topic, int partition, long first, long records, long... dead) {
        Outcomes.RangeOutcome range = range(topic, partition, first, records);
        for (long offset : dead) {
            range.deadLetter(offset, "bad");
        }
        return range;
    }

    @Test
    void outcomesAreZeroBeforeTheirFieldsAreDeserialized() throws ReflectiveOperationException {
        // Deserialization creates the object before it reads the fields, and a heartbeat may use the object in between.
        Class<?> factory = Class.forName("sun.reflect.ReflectionFactory");
        Constructor<?> withoutFields = (Constructor<?>) factory
                .getMethod("newConstructorForSerialization", Class.class, Constructor.class)
                .invoke(
                        factory.getMethod("getReflectionFactory").invoke(null),
                        Outcomes.class,
                        Object.class.getConstructor());
        assertTrue(((Outcomes) withoutFields.newInstance()).isZero());
        assertTrue(outcomes.isZero());
        outcomes.add(range("t", 0, 0, 1));
        assertFalse(outcomes.isZero());
    }

    @Nested
    class Counts {
        @Test
        void theCountsOfAPartitionAreSummed() {
            outcomes.add(broken("t", 0, 0, 10, 3));
            outcomes.add(broken("t", 0, 10, 5, 12, 14));
            Outcomes.RangeOutcome skipped = range("t", 10, 0, 7);
            skipped.skipped = 2;
            outcomes.add(skipped);
            outcomes.add(range("s", 0, 0, 1));
            assertEquals("{\"s\":{\"0\":[1,0,0]},\"t\":{\"0\":[15,3,0],\"10\":[7,0,2]}}", outcomes.toJson());
            assertEquals(23, outcomes.records());
            assertEquals(3, outcomes.deadLetters());
            assertEquals(2, outcomes.skipped());
        }

        @Test
        void aTaskThatRanTwiceCountsOnce() {
            outcomes.add(broken("t", 0, 0, 10, 3));
            outcomes.add(broken("t", 0, 0, 10, 3));
            assertEquals("{\"t\":{\"0\":[10,1,0]}}", outcomes.toJson());
        }

        @Test
        void deadRangesIncludeAllDeadLettersOfThePartition() {
            outcomes.add(broken("t", 0, 0, 10, 7, 3));
            outcomes.add(broken("t", 0, 10, 10, 12));
            outcomes.add(range("t", 1, 0, 10));
            assertEquals("{\"t\":{\"0\":[3,13]}}", outcomes.deadRanges());
        }

        @Test
        void countsWithoutRecordsAreEmpty() {
            assertEquals("{}", outcomes.toJson());
            assertEquals("{}", outcomes.deadRanges());
            assertEquals(List.of(), outcomes.reasons());
            assertTrue(outcomes.isZero());
            outcomes.check();
        }

        @Test
        void countsAreMergedAndCopied() {
            outcomes.add(range("t", 0, 0, 10));
            Outcomes other = new Outcomes();
            other.add(range("t", 1, 0, 5));
            other.add(range("t", 0, 0, 10));
            Outcomes copy = outcomes.copy();
            outcomes.merge(other);
            assertEquals(15, outcomes.records());
            assertEquals(10, copy.records(), "a copy is independent");
            outcomes.reset();
            assertTrue(outcomes.isZero());
            assertEquals(10, copy.records());
        }
    }

    @Nested
    class Budget {
        @ParameterizedTest(name = "{0} of {1} after {4} of {5}, at most {2} and {3}: {6}")
        @CsvSource({
            "0, 10, 0, 0.0, 0, 0, true",
            "1, 10, 0, 1.0, 0, 0, false",
            "1, 10, 1, 0.1, 0, 0, true", // as many dead letters as the limit allows
            "2, 10, 9, 0.1, 0, 0, false",
            "1, 10, 1, 1.0, 1, 10, false", // the dead letters and records of earlier batches count, too
            "1, 10, 9, 0.1, 1, 10, true",
            "2, 10, 9, 0.1, 1, 10, false",
            "3, 10, 9, 0.1, 0, 20, true",
        })
        void theBudgetAllowsABatchUpToItsLimits(int dead, int records, long most, double share, long deadBefore, long recordsBefore, boolean allowed) {
            long[] offsets = new long[dead];
            for (int at = 0; at < dead; at++) {
                offsets[at] = at;
            }
            outcomes.add(broken("t", 0, 0, records, offsets));
            outcomes.bound(most, share, recordsBefore, deadBefore);
            if (allowed) {
                outcomes.check();
                assertNull(outcomes.refusal());
            } else {
                assertThrows(BatchRefused.class, outcomes::check);
                assertEquals("budget", outcomes.refusal());
            }
        }

        @Test
        void aBatchIsAcceptedOnlyWithinAllLimits() {
            outcomes.add(broken("t", 0, 0, 10, 1, 2));
            outcomes.bound(5, 1, 0, 0);
            outcomes.check();
            outcomes.bound(1, 1, 0, 0);
            assertThrows(BatchRefused.class, outcomes::check);
        }
    }

    @Test
    void theTimeSinceTheSinkMayCommitIsKnown() {
        assertEquals(-1, outcomes.secondsSinceAllowed());
        outcomes.cover(List.of(1));
        outcomes.check();
        double since = outcomes.secondsSinceAllowed();
        assertTrue(since >= 0 && since < 60, () -> "not " + since);
    }

    @Nested
    class Refusals {
        @Test
        void schemasThatTheTableDoesNotCoverAreRefused() {
            Outcomes.RangeOutcome range = range("t", 0, 0, 10);
            range.schemaIds.addAll(Set.of(1, 2));
            outcomes.add(range);
            outcomes.check();
            outcomes.cover(List.of(1, 2, 3));
            outcomes.check();
            outcomes.cover(List.of(1));
            BatchRefused refused = assertThrows(BatchRefused.class, outcomes::check);
            assertTrue(refused.getMessage().endsWith("[1, 2]"), refused.getMessage());
            assertEquals("schemas", outcomes.refusal());
        }

        @Test
        void theFirstRecordThatStopsTheFeedIsReported() {
            Outcomes.RangeOutcome later = range("t", 1, 0, 10);
            later.stop(5, "later");
            outcomes.add(later);
            Outcomes.RangeOutcome first = range("t", 0, 0, 10);
            first.stop(7, "why");
            first.stop(8, "not this one");
            outcomes.add(first);
            Outcomes.RangeOutcome other = range("u", 0, 0, 10);
            other.stop(1, "another topic");
            outcomes.add(other);
            assertEquals("topic t, partition 0, offset 7: why", outcomes.stop());
            assertThrows(BatchRefused.class, outcomes::check);
            assertEquals("stop", outcomes.refusal());
        }

        @Test
        void theNextCheckForgetsAnEarlierRefusal() {
            outcomes.add(broken("t", 0, 0, 10, 1));
            outcomes.bound(0, 1, 0, 0);
            assertThrows(BatchRefused.class, outcomes::check);
            outcomes.reset();
            outcomes.check();
            assertNull(outcomes.refusal());
        }
    }

    @Nested
    class Reasons {
        @Test
        void reasonsThatDifferOnlyInNumbersAreCountedTogether() {
            Outcomes.RangeOutcome range = range("t", 0, 0, 10);
            range.deadLetter(3, "truncated at byte 17 of 20");
            range.deadLetter(4, "truncated at byte 2 of 5");
            range.deadLetter(5, "not JSON");
            outcomes.add(range);
            Outcomes.RangeOutcome other = range("t", 1, 0, 10);
            other.deadLetter(1, "truncated at byte 9 of 9");
            outcomes.add(other);
            List<Outcomes.RangeOutcome.Reason> reasons = outcomes.reasons();
            assertEquals(2, reasons.size());
            assertEquals("truncated at byte # of #", reasons.get(0).text());
            assertEquals(3, reasons.get(0).count());
            assertEquals("not JSON", reasons.get(1).text());
            assertEquals("t, partition 0, offset 5: not JSON", reasons.get(1).sample());
        }

        @Test
        void reasonsBeyondTheLimitAreCountedTogether() {
            Outcomes.RangeOutcome range = range("t", 0, 0, 100);
            for (int at = 0; at < 100; at++) {
                range.deadLetter(at, "reason " + "x".repeat(at));
            }
            assertEquals(21, range.reasons.size());
            assertEquals(80, range.reasons.get("for further reasons").count());
            assertEquals(100, range.deadLetters);
        }

        @Test
        void aLongReasonIsShortened() {
            Outcomes.RangeOutcome range = range("t", 0, 0, 1);
            range.deadLetter(0, "y".repeat(500));
            assertEquals(201, range.reasons.keySet().iterator().next().length());
        }
    }

    @Test
    void aBatchIsFoundByItsCommitIdUntilItIsClosed() {
        assertNull(Outcomes.of(null));
        assertNull(Outcomes.of("none"));
        outcomes.next("none", "one");
        assertEquals(outcomes, Outcomes.of("one"));
        outcomes.add(range("t", 0, 0, 10));
        outcomes.next("one", "two");
        assertTrue(outcomes.isZero(), "the next batch counts from zero");
        assertNull(Outcomes.of("one"));
        assertFalse(Outcomes.of("two") == null);
        Outcomes.close("two");
        assertNull(Outcomes.of("two"));
    }
}
