package io.lakefeed.s3;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class KeyClassTest {
    @ParameterizedTest(name = "{0} is {1} of {2}")
    @CsvSource({
        "w/t/data/00000-0-a.parquet, DATA, b/w/t",
        "w/t/data/day=2026-01-01/00000-0-a.parquet, DATA, b/w/t",
        "w/t/metadata/00001-a.metadata.json, METADATA, b/w/t",
        "w/t/metadata/snap-1-1-a.avro, METADATA, b/w/t",
        "w/t/metadata/, METADATA, b/w/t",
        "files/part-00000-a.parquet, DATA, b/files",
        "files/day=1/hour=2/part-00000-a.parquet, DATA, b/files",
        "part-00000-a.parquet, DATA, b",
        "files/_spark_metadata/17, SINK_LOG, b/files",
        "files/_spark_metadata, SINK_LOG, b/files",
        "cp/offsets/17, OFFSETS, b/cp",
        "cp/offsets/.17.tmp, OFFSETS, b/cp",
        "cp/offsets/, OFFSETS, b/cp",
        "cp/offsets, OFFSETS, b/cp",
        "cp/commits/17, COMMITS, b/cp",
        "cp/commits, COMMITS, b/cp",
        "cp/state/0/3/17.delta, STATE, b/cp",
        "cp/state, STATE, b/cp",
        "cp/sources/0/0, CHECKPOINT, b/cp",
        "cp/metadata, CHECKPOINT, b/cp",
        "cp/lakefeed.json, CHECKPOINT, b/cp",
        "state/california/x.csv, OTHER, b/state/california", // the directory is named like a state store, but is none
        "sources/list.txt, OTHER, b/sources",
        "w/offsets/report.csv, OTHER, b/w/offsets",
        "x/y.txt, OTHER, b/x",
        "'', OTHER, b",
        "data/data/x.parquet, DATA, b/data", // the last directory counts
        "w/mydata/x.bin, OTHER, b/w/mydata",
    })
    void aKeyHasAClassAndALocation(String key, KeyClass keyClass, String location) {
        assertEquals(new KeyClass.Place(keyClass, location), KeyClass.place("b", key));
    }

    private static RequestCount count(String location) {
        return new RequestCount("PutObject", KeyClass.DATA, location, 1, 2, 3, 4);
    }

    @Test
    void aCountBelongsToItsLocationAndAllLocationsAbove() {
        assertTrue(count("b/w/t").isBelow("b/w/t"));
        assertTrue(count("b/w/t").isBelow("b/w"));
        assertFalse(count("b/w/t").isBelow("b/w/t/x"));
        assertFalse(count("b/w/t2").isBelow("b/w/t"), "a neighbour whose name begins alike");
    }

    @Test
    void aCountIsALineOfSevenColumns() {
        assertEquals("PutObject\tdata\tb/w\t1\t2\t3\t4", count("b/w").line());
    }
}
