package io.lakefeed.produce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.csv.CSVOptions;
import org.apache.spark.sql.catalyst.csv.UnivocityParser;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import scala.collection.immutable.Map$;

/** {@code tests/spark/test_csv_files.py} compares the rows with Spark's; this shows which lines are read here. */
class CsvLineTest {
    private static final StructType COLUMNS =
            StructType.fromDDL("id BIGINT, ratio DOUBLE, flag BOOLEAN, price DECIMAL(9, 2), text STRING");

    private static CsvLine reader(StructType required) {
        CSVOptions options = new CSVOptions(Map$.MODULE$.empty(), true, "UTC");
        return new CsvLine(COLUMNS, required, new UnivocityParser(COLUMNS, required, options));
    }

    private static InternalRow read(CsvLine reader, String line) {
        // As Hadoop's reader gives it: in an array with older bytes behind.
        byte[] bytes = (line + "\"garbage").getBytes(StandardCharsets.UTF_8);
        return reader.read(bytes, line.getBytes(StandardCharsets.UTF_8).length);
    }

    @Test
    void aPlainLineIsReadHere() {
        InternalRow row = read(reader(COLUMNS), "-12,0.30,true,1.25,ä€ text");
        assertEquals(-12, row.getLong(0));
        assertEquals(0.3, row.getDouble(1));
        assertTrue(row.getBoolean(2));
        assertEquals("1.25", row.getDecimal(3, 9, 2).toString());
        assertEquals("ä€ text", row.getUTF8String(4).toString());
    }

    @Test
    void emptyValuesAreNull() {
        InternalRow row = read(reader(COLUMNS), ",,,,");
        for (int column = 0; column < COLUMNS.size(); column++) {
            assertTrue(row.isNullAt(column));
        }
    }

    @Test
    void aRowHasTheColumnsThatAreAskedForInTheirOrder() {
        StructType required = StructType.fromDDL("text STRING, id BIGINT");
        CsvLine reader = reader(required);
        for (String text : List.of("long text of a line", "b")) {
            InternalRow row = read(reader, "7,not a number,,x," + text);
            assertEquals(2, row.numFields());
            assertEquals(text, row.getUTF8String(0).toString());
            assertEquals(7, row.getLong(1));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "", "   ", "1,2", "1,2,true,1,a,b", "\"1\",2,true,1,a", "1,2,true,1,\ta", "1.0,2,true,1,a", "1.,2,true,1,a",
        "-,2,true,1,a", "+1,2,true,1,a", "1234567890123456789,2,true,1,a", "1,1e3,true,1,a", "1,.5,true,1,a",
        "1,9007199254740993,true,1,a", "1,NaN,true,1,a", "1,2,TRUE,1,a", "1,2,true,x,a", "1,2,true,12345678.9,a"
    })
    void anyOtherLineIsLeftToSpark(String line) {
        CsvLine reader = reader(COLUMNS);
        assertNull(read(reader, line));
        assertNotNull(read(reader, "1,2,true,3,a"), "the reader still reads the next line");
    }
}
