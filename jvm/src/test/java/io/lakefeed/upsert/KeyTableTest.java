package io.lakefeed.upsert;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.LongStream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class KeyTableTest {
    private record Key(long high, int low) {}

    private record Place(int file, int position, int partition, List<Long> order) {}

    private static Place found(KeyTable table, Key key) {
        return table.find(key.high(), key.low())
                ? new Place(table.file(), table.position(), table.partition(), order(table.order()))
                : null;
    }

    private static List<Long> order(long[] numbers) {
        return LongStream.of(numbers).boxed().toList();
    }

    /** Only {@code bits} bits of the hash vary, so that many keys are in one segment and wrap around at its end. */
    @ParameterizedTest
    @ValueSource(longs = {-1L, 0x00FFFF0000000000L, 0x0000000000000003L})
    void aTableHasTheContentOfAMap(long bits) {
        Random random = new Random(bits);
        KeyTable table = new KeyTable(2);
        Map<Key, Place> model = new HashMap<>();
        for (int step = 0; step < 100_000; step++) {
            Key key = new Key(random.nextLong() & bits, random.nextInt(300));
            if (random.nextInt(3) == 0) {
                table.remove(key.high(), key.low());
                model.remove(key);
            } else {
                KeyEntries entries = new KeyEntries(2, true);
                long[] order = {random.nextInt(3), random.nextLong()};
                entries.add(new KeyEntries.Key(0, 0, KeyEntries.NO_PARTITION), 0, 0, order, 0, false);
                Place place = new Place(random.nextInt(5), random.nextInt(), random.nextInt(9) - 1, order(order));
                table.put(key.high(), key.low(), place.file(), place.position(), place.partition());
                table.order(entries, 0);
                assertEquals(0, table.compare(entries, 0));
                entries.order[1] = Long.MIN_VALUE;
                assertTrue(order[1] == Long.MIN_VALUE || table.compare(entries, 0) < 0);
                model.put(key, place);
            }
            assertEquals(model.size(), table.size());
        }
        model.forEach((key, place) -> assertEquals(place, found(table, key)));
        assertFalse(table.find(random.nextLong() & bits, 301));
    }

    @ParameterizedTest
    @ValueSource(ints = {1_000_000})
    void aTableTakesLittleMemory(int keys) {
        KeyTable table = new KeyTable(0);
        Random random = new Random(1);
        for (int at = 0; at < keys; at++) {
            table.put(random.nextLong(), 0, at, at, 0);
        }
        assertEquals(keys, table.size());
        assertTrue(table.bytes() < 30L * keys, () -> table.bytes() / keys + " bytes a key");
        table.clear();
        assertEquals(0, table.size());
        assertEquals(0, table.bytes());
    }
}
