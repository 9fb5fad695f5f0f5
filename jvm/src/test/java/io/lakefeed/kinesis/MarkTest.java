package io.lakefeed.kinesis;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakefeed.Json;
import java.util.TreeMap;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class MarkTest {
    @ParameterizedTest(name = "{0}")
    @CsvSource(nullValues = "none", value = {
        "oldest, none, none, 0, false",
        "since:123, none, 123, 0, false",
        "since:123 seen:123, none, 123, 123, false",
        "49590338271490256608559692538361571095921575989136588898, "
                + "49590338271490256608559692538361571095921575989136588898, none, 0, false",
        "49 seen:7, 49, none, 7, false",
        "49 finished, 49, none, 0, true",
        "49 seen:7 finished, 49, none, 7, true",
    })
    void aMarkIsReadAsItWasWritten(String text, String sequenceNumber, Long since, long seen, boolean finished) {
        Mark mark = Mark.of(text);
        assertEquals(sequenceNumber, mark.sequenceNumber());
        assertEquals(since, mark.since());
        assertEquals(seen, mark.seen());
        assertEquals(finished, mark.finished());
        assertEquals(text, mark.toString());
    }

    @ParameterizedTest
    @ValueSource(strings = {"49 other", "49 seen:x", "49 50", "49 finished yes"})
    void malformedMarksAreRefused(String text) {
        assertThrows(IllegalArgumentException.class, () -> Mark.of(text));
    }

    @Test
    void recordsBeforeTheTimeOfAMarkCountAsRead() {
        assertEquals(new Mark("since:99", 99, false), Mark.since(99));
        assertEquals("since:99 seen:99", Mark.since(99).toString());
    }

    @Nested
    class Offsets {
        @Test
        void offsetsAreReadFromTheirJson() {
            String json = Json.quoted("{'s':{'0':{'at':12,'mark':'49 seen:7'},'10':{'at':0,'mark':'oldest'}}}");
            StreamOffset offset = StreamOffset.of(json);
            assertEquals(json, offset.json());
            assertEquals(new StreamOffset.At(12, new Mark("49", 7, false)), offset.at(0));
            assertEquals(StreamOffset.At.BEGINNING, offset.at(3), "a shard that was not read");
        }

        @Test
        void shardsAreOrderedByNumber() {
            TreeMap<Integer, StreamOffset.At> shards = new TreeMap<>();
            shards.put(10, StreamOffset.At.BEGINNING);
            shards.put(9, StreamOffset.At.BEGINNING);
            assertEquals(Json.quoted("{'s':{'9':{'at':0,'mark':'oldest'},'10':{'at':0,'mark':'oldest'}}}"),
                    new StreamOffset("s", shards).json());
        }

        @Test
        void offsetsDoNotShareTheirMapOfShards() {
            TreeMap<Integer, StreamOffset.At> shards = new TreeMap<>();
            StreamOffset offset = new StreamOffset("s", shards);
            shards.put(1, StreamOffset.At.BEGINNING);
            offset.shards().put(2, StreamOffset.At.BEGINNING);
            assertTrue(offset.shards().isEmpty());
        }

        @Test
        void malformedOffsetsAreRefused() {
            assertThrows(IllegalArgumentException.class, () -> StreamOffset.of("{"));
        }
    }

    @Test
    void aTaskReadsBetweenTwoOffsets() {
        StreamOffset.At start = new StreamOffset.At(12, Mark.of("49 seen:7"));
        StreamOffset.At end = new StreamOffset.At(20, Mark.of("57"));
        ShardRange range = ShardRange.of(null, 3, start, end);
        assertEquals(12, range.from());
        assertEquals(20, range.to());
        assertEquals("49 seen:7", range.mark());
        assertEquals("57", range.last());
        assertNull(ShardRange.of(null, 3, start, new StreamOffset.At(20, Mark.since(5))).last());
    }

    @Nested
    class RetentionPeriods {
        private static final long DAY = 24 * 3_600_000L;

        private static Mark seen(long ago) {
            return new Mark("49", System.currentTimeMillis() - ago, false);
        }

        @Test
        void recordsCountAsExpiredFiveMinutesBeforeTheRetentionEnds() {
            assertTrue(new Retention(DAY).hasReached(seen(DAY)));
            assertTrue(new Retention(DAY).hasReached(seen(DAY - 4 * 60_000)));
            assertFalse(new Retention(DAY).hasReached(seen(DAY - 6 * 60_000)));
        }

        @Test
        void aMarkWithAnUnknownTimeHasNotReachedTheRetention() {
            assertFalse(new Retention(DAY).hasReached(new Mark("49", 0, false)));
        }

        @Test
        void onlyShardsThatAreNotFinishedLoseRecordsToTheRetention() {
            assertNull(new Retention(DAY).lost(0, new Mark("oldest", 1, true), null));
            assertNull(new Retention(DAY).lost(0, Mark.since(System.currentTimeMillis()), null));
            String lost = new Retention(DAY).lost(0, Mark.since(System.currentTimeMillis() - 2 * DAY), null);
            assertTrue(lost.contains("24 hours"), lost);
        }
    }
}
