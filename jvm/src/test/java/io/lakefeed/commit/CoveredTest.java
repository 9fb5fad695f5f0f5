package io.lakefeed.commit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakefeed.Json;
import java.util.BitSet;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class CoveredTest {
    private static JsonNode range(long start, long end) {
        return Json.of("{'t': {'id': 'A', 'ranges': {'0': [" + start + ", " + end + "]}}}");
    }

    private static Covered of(String offsets) {
        Covered covered = Covered.nothing();
        if (!offsets.isEmpty()) {
            String[] bounds = offsets.split(" ");
            for (int at = 0; at < bounds.length; at += 2) {
                covered.add(range(Long.parseLong(bounds[at]), Long.parseLong(bounds[at + 1])));
            }
        }
        return covered;
    }

    @ParameterizedTest(name = "[{0}] with [{1}, {2}) is [{3}]")
    @CsvSource({
        "'', 0, 5, 0 5",
        "0 5, 5, 9, 0 9", // touches the interval's end
        "5 9, 0, 5, 0 9", // touches the interval's start
        "0 5, 7, 9, 0 5 7 9", // leaves a gap between the intervals
        "0 5 7 9, 5, 7, 0 9", // fills the gap between the intervals
        "0 5 7 9, 4, 8, 0 9", // overlaps both intervals
        "0 9, 3, 4, 0 9", // lies inside the interval
        "3 4, 0, 9, 0 9", // contains the interval
        "0 1 2 3 4 5 6 7, 0, 7, 0 7", // contains several intervals
        "0 5, 5, 5, 0 5", // the added range is empty
        "0 5, 9, 3, 0 5", // the added range ends before it begins
        "'', 9223372036854775800, 9223372036854775807, 9223372036854775800 9223372036854775807",
    })
    void aRangeIsAdded(String before, long start, long end, String after) {
        Covered covered = of(before);
        covered.add(range(start, end));
        assertEquals(after, Tables.offsets(covered));
    }

    @ParameterizedTest(name = "[{0}] without [{1}, {2}) is [{3}]")
    @CsvSource({
        "0 9, 0, 9, ''",
        "0 9, 0, 4, 4 9",
        "0 9, 4, 9, 0 4",
        "0 9, 3, 5, 0 3 5 9", // splits the interval
        "0 5 7 9, 4, 8, 0 4 8 9", // cuts both intervals
        "0 2 4 6 8 10, 1, 9, 0 1 9 10", // removes the middle interval
        "0 5, 5, 9, 0 5", // begins where the interval ends
        "5 9, 0, 5, 5 9", // ends where the interval begins
        "0 5, 2, 2, 0 5", // the removed range is empty
        "'', 0, 5, ''",
    })
    void aRangeIsRemoved(String before, long start, long end, String after) {
        Covered covered = of(before);
        covered.remove(range(start, end));
        assertEquals(after, Tables.offsets(covered));
    }

    @ParameterizedTest(name = "seed {0}")
    @ValueSource(longs = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
    void randomRangesGiveTheSameOffsetsAsABitSet(long seed) {
        Random random = new Random(seed);
        Covered covered = Covered.nothing();
        BitSet expected = new BitSet();
        for (int step = 0; step < 200; step++) {
            int start = random.nextInt(60);
            int end = start + random.nextInt(20);
            boolean adds = random.nextInt(3) > 0;
            boolean overlaps = !expected.get(start, end).isEmpty();
            assertEquals(overlaps, covered.overlap(range(start, end)) != null, "overlap of [" + start + ", " + end + ")");
            if (adds) {
                covered.add(range(start, end));
            } else {
                covered.remove(range(start, end));
            }
            expected.set(start, end, adds);
            assertEquals(bounds(expected), Tables.offsets(covered), "after step " + step);
        }
    }

    private static String bounds(BitSet offsets) {
        StringBuilder text = new StringBuilder();
        for (int start = offsets.nextSetBit(0); start >= 0; ) {
            int end = offsets.nextClearBit(start);
            text.append(' ').append(start).append(' ').append(end);
            start = offsets.nextSetBit(end);
        }
        return text.toString().strip();
    }

    @Test
    void partitionsAndTopicsHaveSeparateOffsets() {
        Covered covered = Covered.nothing();
        covered.add(Json.of("{'t': {'id': 'A', 'ranges': {'0': [0, 5], '10': [3, 4]}}, 'u': {'id': 'B', 'ranges': {'0': [7, 9]}}}"));
        covered.remove(Json.of("{'t': {'id': 'A', 'ranges': {'10': [0, 9]}}}"));
        assertEquals(
                Json.quoted("{'t':{'id':'A','offsets':{'0':[0,5],'10':[]}},'u':{'id':'B','offsets':{'0':[7,9]}}}"),
                covered.toJson().toString());
    }

    @Test
    void aRecreatedTopicHasNoCoveredOffsets() {
        Covered covered = of("0 9");
        covered.add(Json.of("{'t': {'id': 'B', 'ranges': {'0': [2, 4]}}}"));
        assertEquals(Json.quoted("{'t':{'id':'B','offsets':{'0':[2,4]}}}"), covered.toJson().toString());
    }

    @Test
    void keepRemovesTopicsThatAreMissingOrRecreated() {
        Covered covered = of("0 9");
        covered.add(Json.of("{'u': {'id': 'U', 'ranges': {'0': [0, 3]}}, 'v': {'id': 'V', 'ranges': {'0': [0, 3]}}}"));
        covered.keep(Json.of("{'t': {'id': 'A', 'ranges': {}}, 'u': {'id': 'other', 'ranges': {}}}"));
        assertEquals(Json.quoted("{'t':{'id':'A','offsets':{'0':[0,9]}}}"), covered.toJson().toString());
    }

    @Test
    void writtenOffsetsAreReadBack() {
        JsonNode json = Json.of("{'t': {'id': 'A', 'offsets': {'0': [0, 5, 7, 9], '1': []}}}");
        assertEquals(json.toString(), Covered.of(json).toJson().toString());
        assertEquals(Json.quoted("{}"), Covered.nothing().toJson().toString());
    }

    @Test
    void overlapDescribesTheFirstCoveredRange() {
        Covered covered = of("0 5 7 9");
        assertEquals("t-0 has [7, 9) already", covered.overlap(range(8, 20)));
        assertNull(covered.overlap(range(5, 7)));
        assertNull(covered.overlap(range(9, 9)));
        assertNull(covered.overlap(Json.of("{'t': {'id': 'A', 'ranges': {'1': [0, 9]}}}")));
    }
}
