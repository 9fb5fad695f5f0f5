package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakefeed.Json;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class AvroPlanTest {
    /** Returns Avro's binary encoding of a value that is given in Avro's JSON encoding. */
    static byte[] encode(String schema, String json) {
        try {
            Schema writer = AvroTypes.parsed(Json.quoted(schema));
            Object value = new GenericDatumReader<>(writer).read(null, DecoderFactory.get().jsonDecoder(writer, Json.quoted(json)));
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
            new GenericDatumWriter<>(writer).write(value, encoder);
            encoder.flush();
            return bytes.toByteArray();
        } catch (IOException invalid) {
            throw new UncheckedIOException(invalid);
        }
    }

    static String read(String writer, String reader, byte[] record) {
        Schema schema = AvroTypes.reader(Json.quoted(reader));
        DataType type = AvroTypes.of(schema);
        AvroReader avro = new AvroReader(schema, type, AvroTypes.parsed(Json.quoted(writer)));
        return Values.of(avro.read(record, null), type instanceof StructType struct ? struct : new StructType().add("value", type));
    }

    private static String record(String fields) {
        return "{'type':'record','name':'R','fields':[" + fields + "]}";
    }

    private static String field(String type) {
        return record("{'name':'f','type':" + type + "}");
    }

    /** Reads a record with one field, and returns the field's value. */
    private static String value(String writer, String reader, String json) {
        String row = read(field(writer), field(reader), encode(field(writer), "{'f':" + json + "}"));
        return row.startsWith("[") ? row.substring(1, row.length() - 1) : row;
    }

    private static void check(String expected, String found) {
        if (expected.startsWith("error")) {
            String reason = expected.substring("error".length()).strip();
            assertTrue(found.startsWith("error: ") && found.contains(reason), found);
        } else {
            assertEquals(expected, found);
        }
    }

    @ParameterizedTest(name = "{0} as {1}: {2} is {3}")
    @CsvSource(delimiter = '|', value = {
        "'int' | 'int' | 5 | 5",
        "'int' | 'long' | -5 | -5",
        "'int' | 'float' | 5 | 5.0",
        "'int' | 'double' | 5 | 5.0",
        "'long' | 'float' | 5 | 5.0",
        "'long' | 'double' | 5 | 5.0",
        "'float' | 'double' | 1.5 | 1.5",
        "'string' | 'bytes' | 'ab' | 0x6162",
        "'bytes' | 'string' | 'ab' | ab",
        "'boolean' | 'boolean' | true | true",
        "'null' | 'null' | null | null",
        "'long' | 'int' | 5 | error found long, expecting int",
        "'double' | 'float' | 5 | error found double, expecting float",
        "'string' | 'int' | 'a' | error found string, expecting int",
        "'boolean' | 'int' | true | error found boolean, expecting int",
    }, quoteCharacter = '`')
    void valuesArePromotedToTheReadersType(String writer, String reader, String json, String expected) {
        check(expected, value(writer, reader, json));
    }

    @ParameterizedTest(name = "{0} as {1}: {2} is {3}")
    @CsvSource(delimiter = '|', value = {
        "['null','int'] | ['null','int'] | {'int':5} | 5",
        "['null','int'] | ['null','int'] | null | null",
        "['int','null'] | ['null','long'] | {'int':5} | 5",
        "'int' | ['null','long'] | 5 | 5",
        "['null','int'] | 'long' | {'int':5} | 5",
        "['null','int'] | 'long' | null | error found null, expecting long",
        "['null','string','int'] | ['null','int'] | {'string':'a'} | error ",
        "['int','long'] | ['int','long'] | {'int':5} | 5", // a union of numbers is one column of the wider type
        "['float','double'] | ['float','double'] | {'float':1.5} | 1.5",
        "['int','string'] | ['int','string'] | {'string':'a'} | [null, a]",
        "['int','string'] | ['int','string'] | {'int':1} | [1, null]",
        "['null','int','string'] | ['null','int','string'] | null | null",
        "'string' | ['int','string'] | 'a' | [null, a]",
        "'int' | ['long','string'] | 7 | [7, null]",
    }, quoteCharacter = '`')
    void unionsAreRead(String writer, String reader, String json, String expected) {
        check(expected, value(writer, reader, json));
    }

    @ParameterizedTest(name = "{0} as {1}: {2} is {3}")
    @CsvSource(delimiter = '|', value = {
        "timestamp-micros | timestamp-micros | 7 | 7",
        "timestamp-millis | timestamp-millis | 7 | 7000", // Spark's timestamps have microseconds
        "timestamp-millis | timestamp-micros | 7 | 7000",
        "timestamp-micros | timestamp-millis | 7 | 7",
        "local-timestamp-millis | local-timestamp-micros | 7 | 7000",
        "timestamp-nanos | timestamp-micros | 7 | error which is finer than",
        "timestamp-millis | timestamp-micros | 9223372036854775807 | error ",
        "time-micros | time-micros | 7 | 7",
    })
    void timestampsAreConvertedToTheReadersUnit(String writer, String reader, String json, String expected) {
        String type = "{'type':'long','logicalType':'%s'}";
        check(expected, value(type.formatted(writer), type.formatted(reader), json));
    }

    @ParameterizedTest(name = "{0} as {1}: {2} is {3}")
    @CsvSource(delimiter = '|', value = {
        "5,2 | 5,2 | \\u0000\\u007b | 1.23",
        "5,2 | 5,2 | \\u00ff\\u0085 | -1.23",
        "5,2 | 5,2 | \\u0000 | 0.00",
        "5,2 | 9,4 | \\u007b | 1.2300",
        "5,2 | 5,1 | \\u0078 | 1.2",
        "5,2 | 5,1 | \\u007b | error more than the 1 digits after the point",
        "5,2 | 5,2 | \\u007f\\u00ff\\u00ff | error more digits than decimal(5,2) holds",
        "30,2 | 30,2 | \\u0001\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000 | 184467440737095516.16",
    })
    void decimalsAreConvertedToTheReadersScale(String writer, String reader, String json, String expected) {
        String type = "{'type':'bytes','logicalType':'decimal','precision':%s,'scale':%s}";
        check(expected, value(type.formatted((Object[]) writer.split(",")), type.formatted((Object[]) reader.split(",")), "'" + json + "'"));
    }

    @Nested
    class Enums {
        private static final String WRITER = "{'type':'enum','name':'E','symbols':['A','B','C']}";

        @Test
        void enumsMatchBySymbol() {
            assertEquals("B", value(WRITER, "{'type':'enum','name':'E','symbols':['C','B']}", "'B'"));
        }

        @Test
        void anUnknownSymbolBecomesTheEnumsDefault() {
            assertEquals("C", value(WRITER, "{'type':'enum','name':'E','symbols':['C','B'],'default':'C'}", "'A'"));
        }

        @Test
        void anUnknownSymbolWithoutADefaultIsAnError() {
            check("error no symbol A and no default", value(WRITER, "{'type':'enum','name':'E','symbols':['C','B']}", "'A'"));
        }
    }

    @Nested
    class Records {
        private static final String WRITER = record("{'name':'a','type':'int'},{'name':'b','type':'string'}");
        private static final byte[] RECORD = encode(WRITER, "{'a':1,'b':'x'}");

        @ParameterizedTest(name = "{0}: {1}")
        @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
            "{'name':'b','type':'string'},{'name':'a','type':'int'} | [x, 1]", // the order of fields differs
            "{'name':'b','type':'string'} | [x]",
            "{'name':'a','type':'int'} | [1]",
            "{'name':'c','type':'int','aliases':['a']} | [1]",
            "{'name':'a','type':'int'},{'name':'c','type':['null','int']} | [1, null]", // nullable, without a default
            "{'name':'a','type':'int'},{'name':'c','type':['int','null']} | [1, null]",
            "{'name':'a','type':'int'},{'name':'c','type':'long','default':7} | [1, 7]",
            "{'name':'a','type':'int'},{'name':'c','type':{'type':'array','items':'int'},'default':[1,2]} | [1, [1, 2]]",
            "{'name':'a','type':'int'},{'name':'c','type':{'type':'map','values':'int'},'default':{'k':1}} | [1, {k=1}]",
            "{'name':'a','type':'int'},{'name':'c','type':'int'} | error ",
        })
        void fieldsOfRecordsAreResolved(String fields, String expected) {
            check(expected, read(WRITER, record(fields), RECORD));
        }

        @ParameterizedTest
        @ValueSource(strings = {
            "'null'|null", "'boolean'|true", "'int'|1", "'long'|1", "'float'|1", "'double'|1", "'string'|'a'", "'bytes'|'a'",
            "{'type':'fixed','name':'F','size':2}|'ab'", "{'type':'enum','name':'E','symbols':['A']}|'A'",
            "{'type':'array','items':'string'}|['a','b']", "{'type':'map','values':'string'}|{'k':'a'}",
            "['null','string']|{'string':'a'}", "['null','string']|null",
            "{'type':'record','name':'S','fields':[{'name':'x','type':'string'}]}|{'x':'a'}",
            "{'type':'array','items':{'type':'record','name':'S','fields':[]}}|[{},{}]",
        })
        void fieldsThatTheReaderDoesNotHaveAreSkipped(String typeAndValue) {
            String[] parts = typeAndValue.split("\\|");
            String writer = record("{'name':'gone','type':" + parts[0] + "},{'name':'a','type':'int'}");
            byte[] record = encode(writer, "{'gone':" + parts[1] + ",'a':1}");
            assertEquals("[1]", read(writer, record("{'name':'a','type':'int'}"), record));
        }

        @Test
        void aRecordInsideARecordOfTheSameTypeBecomesJson() {
            String tree = "{'type':'record','name':'Node','fields':[{'name':'id','type':'int'},"
                    + "{'name':'next','type':['null','Node'],'default':null}]}";
            byte[] record = encode(tree, "{'id':1,'next':{'Node':{'id':2,'next':{'Node':{'id':3,'next':null}}}}}");
            assertEquals("[1, {\"id\":2,\"next\":{\"id\":3,\"next\":null}}]", read(tree, tree, record));
        }

        @Test
        void recordsArraysAndMapsAreNested() {
            String schema = record("{'name':'o','type':{'type':'record','name':'O','fields':[{'name':'x','type':['null','int']}]}},"
                    + "{'name':'l','type':{'type':'array','items':'O'}},{'name':'m','type':{'type':'map','values':'O'}}");
            byte[] record = encode(schema, "{'o':{'x':null},'l':[{'x':{'int':1}},{'x':null}],'m':{'k':{'x':{'int':2}}}}");
            assertEquals("[[null], [[1], [null]], {k=[2]}]", read(schema, schema, record));
        }
    }

    @Nested
    class Errors {
        private static final String ITEMS = record("{'name':'items','type':{'type':'array','items':"
                + "{'type':'record','name':'I','fields':[{'name':'ok','type':'boolean'}]}}}");

        @Test
        void anErrorNamesThePathOfTheValue() {
            byte[] record = {4, 1, 2, 0};
            assertEquals("error: items[1].ok: a boolean is neither 0 nor 1 at byte 2", read(ITEMS, ITEMS, record));
        }

        @Test
        void anErrorNamesThePathOfASkippedField() {
            String reader = record("{'name':'x','type':'int','default':1}");
            String found = read(ITEMS, reader, new byte[] {4, 1, 2, 0});
            assertEquals("error: items[1].ok: a boolean is neither 0 nor 1 at byte 2", found);
        }

        @Test
        void aTruncatedRecordIsAnError() {
            String schema = record("{'name':'s','type':'string'},{'name':'d','type':'double'},"
                    + "{'name':'a','type':{'type':'array','items':'long'}}");
            byte[] record = encode(schema, "{'s':'text','d':1.5,'a':[1,2,300]}");
            assertEquals("[text, 1.5, [1, 2, 300]]", read(schema, schema, record));
            for (int length = 1; length < record.length; length++) {
                String found = read(schema, schema, Arrays.copyOf(record, length));
                assertTrue(found.startsWith("error: "), length + " bytes: " + found);
            }
            check("error empty", read(schema, schema, new byte[0]));
        }

        @Test
        void bytesAfterARecordAreAnError() {
            check("error 1 byte(s) left over after byte 1", read(field("'int'"), field("'int'"), new byte[] {2, 2}));
        }

        @Test
        void anErrorDoesNotAffectTheNextRecord() {
            Schema schema = AvroTypes.parsed(Json.quoted(ITEMS));
            AvroReader reader = new AvroReader(schema, AvroTypes.of(schema), schema);
            reader.read(new byte[] {4, 1, 2, 0}, null);
            assertEquals("[[[true]]]", Values.of(reader.read(new byte[] {2, 1, 0}, null), AvroTypes.of(schema)));
        }
    }

    @ParameterizedTest(name = "{0}: {1} is {2}")
    @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
        "'int' | 5 | [5]",
        "'string' | 'a' | [a]",
        "{'type':'array','items':'int'} | [1,2] | [[1, 2]]",
        "['null','int'] | null | null",
        "['null','int'] | {'int':5} | [5]",
    })
    void aValueThatIsNoRecordIsReadIntoAFieldNamedValue(String schema, String json, String expected) {
        assertEquals(expected, read(schema, schema, encode(schema, json)));
    }

    @Test
    void aRecordWithoutFieldsNeedsNoBytes() {
        assertEquals("[7]", read(record(""), record("{'name':'a','type':'int','default':7}"), new byte[0]));
    }
}
