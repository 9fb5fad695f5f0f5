package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakefeed.Json;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.avro.AvroRuntimeException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class AvroTypesTest {
    private static String type(String schema) {
        return AvroTypes.of(AvroTypes.reader(Json.quoted(schema))).catalogString();
    }

    @ParameterizedTest(name = "{0} is {1}")
    @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
        "'boolean' | boolean",
        "'int' | int",
        "'long' | bigint",
        "'float' | float",
        "'double' | double",
        "'string' | string",
        "'bytes' | binary",
        "'null' | void",
        "{'type':'fixed','name':'F','size':3} | binary",
        "{'type':'enum','name':'E','symbols':['A']} | string",
        "{'type':'array','items':'int'} | array<int>",
        "{'type':'map','values':'int'} | map<string,int>",
        "{'type':'int','logicalType':'date'} | date",
        "{'type':'long','logicalType':'timestamp-millis'} | timestamp",
        "{'type':'long','logicalType':'timestamp-micros'} | timestamp",
        "{'type':'long','logicalType':'local-timestamp-micros'} | timestamp_ntz",
        "{'type':'int','logicalType':'time-millis'} | int",
        "{'type':'bytes','logicalType':'decimal','precision':9,'scale':2} | decimal(9,2)",
        "{'type':'string','logicalType':'uuid'} | string",
        "{'type':'long','logicalType':'unheard-of'} | bigint",
        "['null','int'] | int",
        "['null'] | void",
        "['int','long'] | bigint",
        "['null','long','int'] | bigint",
        "['float','double'] | double",
        "['int','string'] | struct<member0:int,member1:string>",
        "['null','int','string'] | struct<member0:int,member1:string>",
        "['int','double'] | struct<member0:int,member1:double>",
        "[{'type':'int','logicalType':'date'},{'type':'long','logicalType':'timestamp-micros'}] | struct<member0:date,member1:timestamp>",
        "{'type':'record','name':'R','fields':[{'name':'a','type':'int'}]} | struct<a:int>",
        "{'type':'record','name':'R','fields':[{'name':'odd-name','type':'int'}]} | struct<odd-name:int>",
        "{'type':'record','name':'R','fields':[{'name':'r','type':['null','R']}]} | struct<r:string>",
        "{'type':'record','name':'R','fields':[{'name':'l','type':{'type':'array','items':'R'}}]} | struct<l:array<string>>",
    })
    void typesAreThoseOfSparksFromAvro(String schema, String type) {
        assertEquals(type, type(schema));
    }

    @ParameterizedTest(name = "{0}: {1}")
    @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
        "['null','int'] | true",
        "['int','null'] | true",
        "'int' | false",
        "['int','long'] | false",
        "'null' | true",
    })
    void columnsAreNullableIfTheSchemaHasNull(String field, boolean nullable) {
        var struct = (org.apache.spark.sql.types.StructType) AvroTypes.of(
                AvroTypes.reader(Json.quoted("{'type':'record','name':'R','fields':[{'name':'a','type':" + field + "}]}")));
        assertEquals(nullable, struct.apply(0).nullable());
    }

    @ParameterizedTest(name = "{0}: {1}")
    @CsvSource(delimiter = '|', quoteCharacter = '`', nullValues = "none", value = {
        "{'name':'a','type':['null','int']} | null",
        "{'name':'a','type':['int','null']} | null",
        "{'name':'a','type':'null'} | null",
        "{'name':'a','type':['int','null'],'default':5} | 5",
        "{'name':'a','type':'int'} | none",
        "{'name':'a','type':['int','string']} | none",
    })
    void aNullableFieldOfTheReaderHasADefault(String field, String expected) {
        var schema = AvroTypes.reader(Json.quoted("{'type':'record','name':'R','fields':[" + field + "]}"));
        var found = schema.getField("a");
        assertEquals(expected != null, found.hasDefaultValue());
        if (expected != null) {
            assertEquals(expected, String.valueOf(found.defaultVal().equals(org.apache.avro.JsonProperties.NULL_VALUE) ? null : found.defaultVal()));
        }
    }

    @Test
    void aNestedNullableFieldHasADefault() {
        var schema = AvroTypes.reader(Json.quoted("{'type':'record','name':'R','fields':[{'name':'o','type':{'type':'array','items':"
                + "{'type':'record','name':'S','fields':[{'name':'a','type':['int','null']}]}}}]}"));
        assertTrue(schema.getField("o").schema().getElementType().getField("a").hasDefaultValue());
    }

    @Test
    void aSchemaWithTooManyColumnsIsRefused() {
        assertEquals(10_000, ((org.apache.spark.sql.types.StructType) AvroTypes.of(AvroTypes.parsed(wide(10_000)))).size());
        assertThrows(AvroRuntimeException.class, () -> AvroTypes.of(AvroTypes.parsed(wide(10_001))));
    }

    private static String wide(int fields) {
        return Json.quoted(IntStream.range(0, fields)
                .mapToObj(at -> "{'name':'f" + at + "','type':'int'}")
                .collect(Collectors.joining(",", "{'type':'record','name':'R','fields':[", "]}")));
    }

    @Test
    void aSchemaWithTooManyLevelsIsRefused() {
        AvroTypes.of(AvroTypes.parsed(deep(99)));
        assertThrows(AvroRuntimeException.class, () -> AvroTypes.of(AvroTypes.parsed(deep(100))));
    }

    private static String deep(int levels) {
        return Json.quoted("{'type':'array','items':".repeat(levels) + "'int'" + "}".repeat(levels));
    }

    /** Each record has two fields of the type of the next record, so that 40 types give 2^40 columns. */
    @Test
    void namedTypesThatExpandToTooManyColumnsAreRefused() {
        StringBuilder schema = new StringBuilder();
        for (int at = 0; at < 40; at++) {
            schema.append("{'type':'record','name':'R").append(at).append("','fields':[{'name':'a','type':");
        }
        schema.append("'int'");
        for (int at = 39; at >= 0; at--) {
            schema.append("},{'name':'b','type':").append(at == 39 ? "'int'" : "'R" + (at + 1) + "'").append("}]}");
        }
        AvroRuntimeException large = assertThrows(
                AvroRuntimeException.class, () -> AvroTypes.of(AvroTypes.parsed(Json.quoted(schema.toString()))));
        assertTrue(large.getMessage().contains("10000 columns"), large.getMessage());
    }
}
