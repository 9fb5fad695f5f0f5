package io.lakefeed.copies;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import java.util.UUID;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;

class RowsSeenTest {
    @Test
    void anOffsetIsNewOnlyOnce() {
        RowsSeen seen = RowsSeen.first();
        assertTrue(seen.add("t/0", 5));
        assertFalse(seen.add("t/0", 5));
        assertTrue(seen.add("t/1", 5), "another partition");
        assertTrue(seen.add("t/0", 4), "an older offset");
        assertTrue(seen.add("t/0", Long.MAX_VALUE));
    }

    @Test
    void aDigestIsNewOnlyOnce() {
        RowsSeen seen = RowsSeen.first();
        assertTrue(seen.add(new UUID(1, 2)));
        assertFalse(seen.add(new UUID(1, 2)));
        assertTrue(seen.add(new UUID(2, 1)));
    }

    @Test
    void theHighestOffsetOfAllBatchesIsKept() {
        RowsSeen seen = RowsSeen.first();
        seen.add("t/0", 5);
        seen.add("t/0", 3);
        RowsSeen next = seen.other();
        assertTrue(next.reached("t/0", 5));
        assertTrue(next.reached("t/0", 4), "below the highest");
        assertFalse(next.reached("t/0", 6));
        assertFalse(next.reached("t/1", 0));
        assertTrue(next.add("t/0", 5), "another batch has other rows");
    }

    @Test
    void writtenRowsAreReadBack() {
        Random random = new Random(3);
        RowsSeen seen = RowsSeen.first();
        long[] offsets = LongStream.range(0, 2_000).map(at -> Math.abs(random.nextLong() >> random.nextInt(60))).toArray();
        for (int at = 0; at < offsets.length; at++) {
            seen.add("t/" + at % 3, offsets[at]);
            seen.add(new UUID(at, offsets[at]));
        }
        byte[] state = seen.write(42);
        assertEquals(42, RowsSeen.batch(state));
        RowsSeen read = RowsSeen.read(state);
        for (int at = 0; at < offsets.length; at++) {
            assertFalse(read.add("t/" + at % 3, offsets[at]));
            assertFalse(read.add(new UUID(at, offsets[at])));
            assertTrue(read.reached("t/" + at % 3, offsets[at]));
        }
        assertTrue(read.add("t/3", 1));
    }

    @Test
    void aRangeOfOffsetsNeedsFewBytes() {
        RowsSeen seen = RowsSeen.first();
        LongStream.range(1_000_000, 1_100_000).forEach(offset -> seen.add("t/0", offset));
        assertTrue(seen.write(1).length < 1_000, "100,000 offsets in a row");
    }

    @Test
    void theFirstStateIsEmpty() {
        byte[] state = RowsSeen.first().write(0);
        assertEquals(0, RowsSeen.batch(state));
        assertFalse(RowsSeen.read(state).reached("t/0", 0));
    }
}
