package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakefeed.Json;
import io.lakefeed.Secrets;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class DecodeFunctionTest {
    private static final String RECORD = "{'type':'record','name':'R','fields':[{'name':'a','type':'int'}]}";
    private static final String[] AVRO = {"reader-schema", RECORD, "writer-schema", RECORD};

    /** Returns the function of a catalog with these options: key, value, key, value, … */
    static DecodeFunction function(String... options) {
        Map<String, String> given = new HashMap<>();
        for (int at = 0; at < options.length; at += 2) {
            given.put(options[at], Json.quoted(options[at + 1]));
        }
        DecodeCatalog catalog = new DecodeCatalog();
        catalog.initialize("taxi", new CaseInsensitiveStringMap(given));
        try {
            return (DecodeFunction) catalog.loadFunction(Identifier.of(new String[0], "decode")).bind(new StructType());
        } catch (NoSuchFunctionException missing) {
            throw new IllegalStateException(missing);
        }
    }

    private static String type(String columns) {
        return DataType.fromDDL(columns).json().replace('"', '\'');
    }

    private static String decode(DecodeFunction function, String value) {
        return decode(function, value.getBytes(StandardCharsets.UTF_8));
    }

    static String decode(DecodeFunction function, byte[] value) {
        return Values.of(function.invoke(value), ((StructType) function.resultType()).apply(0).dataType());
    }

    @Nested
    class Formats {
        @Test
        void theDefaultFormatIsAvro() {
            DecodeFunction function = function(AVRO);
            assertEquals("[5]", decode(function, new byte[] {10}));
            assertEquals("struct<value:struct<a:int>,schema_id:int,error:string>", function.resultType().catalogString());
        }

        @ParameterizedTest(name = "{0} is {1}")
        @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
            "{'a':1,'b':'x'} | [1, x]",
            "{'b':'x','a':1,'c':[1]} | [1, x]", // a field without a column is left out
            "{'a':1} | [1, null]",
            "{'a':'1','b':'x'} | error: a: expected bigint, found a string",
            "{'a':1.5} | error: a: ",
            "{'a':1} {'a':2} | error: something follows the JSON object after character 7",
            "[1] | error: not a JSON object",
            "{'a':1 | error: ",
            "{'a':1,'a':2} | error: ",
            "nothing | error: ",
        })
        void jsonIsDecoded(String text, String expected) {
            DecodeFunction function = function("format", "json", "reader-type", type("a BIGINT, b STRING"));
            String found = decode(function, Json.quoted(text));
            assertTrue(expected.startsWith("error") ? found.startsWith(expected) : found.equals(expected), found);
        }

        @Test
        void lenientJsonMayHaveTextForNumbers() {
            String type = type("a BIGINT, b DOUBLE, c BOOLEAN");
            String text = Json.quoted("{'a':'1','b':NaN,'c':'true'}");
            assertEquals("[1, NaN, true]", decode(function("format", "json", "lenient", "true", "reader-type", type), text));
            assertTrue(decode(function("format", "json", "reader-type", type), text).startsWith("error: "));
        }

        @ParameterizedTest(name = "{0} is {1}")
        @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
            "1,x | [1, x]",
            "1,x\\n | [1, x]",
            "1,x\\r\\n | [1, x]",
            "1,\"x,\"\"y\"\"\" | [1, x,\"y\"]",
            "1,\"a\\nb\" | [1, a\\nb]",
            "1,NULL | [1, null]",
            "1,\"NULL\" | [1, NULL]", // quoted text is never null
            " 1 , x | [1,  x]", // blanks around a number are ignored, blanks in text are kept
            "1, | [1, ]",
            "1 | error: 1 value(s) in the line, 2 expected",
            "1,x,2 | error: 3 value(s) in the line, 2 expected",
            "a,x | error: a: expected bigint",
            "1,\"x | error: the quote at character 2 is not closed",
            "1,\"x\"y | error: something follows the line after character 5",
            "1,x\\n2,y | error: something follows the line after character 3",
        })
        void csvIsDecoded(String line, String expected) {
            DecodeFunction csv = function("format", "io.lakefeed.csv.CsvReader", "reader-type", type("a BIGINT, b STRING"),
                    "delimiter", ",", "quote", "'", "escape", "'", "null-value", "NULL");
            String found = decode(csv, line.replace("\\n", "\n").replace("\\r", "\r")).replace("\n", "\\n");
            assertTrue(expected.startsWith("error") ? found.startsWith(expected) : found.equals(expected), found);
        }

        @Test
        void textMustBeUtf8() {
            DecodeFunction function = function("format", "string");
            assertEquals("[größe]", decode(function, "größe"));
            assertEquals("[]", decode(function, ""));
            assertEquals("error: not UTF-8", decode(function, new byte[] {(byte) 0xFF}));
        }

        @Test
        void protobufIsDecodedAsTheNamedMessage() {
            String proto = "syntax = 'proto3'; message Other {} message M { int32 a = 1; }";
            DecodeFunction function =
                    function("format", "protobuf", "reader-schema", RECORD, "writer-schema", proto, "message", "M");
            assertEquals("[150]", decode(function, new byte[] {8, (byte) 150, 1}));
            assertTrue(decode(function, new byte[] {8, (byte) 150}).startsWith("error: "));
        }
    }

    @Nested
    class Options {
        @ParameterizedTest(name = "{0}: {1}")
        @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
            "format=string | none",
            "format=unknown | reader-schema",
            "format=unknown;reader-type={'type':'struct','fields':[]} | the decoder has no format unknown",
            "reader-schema='int' | no option registry-url",
            "format=json;reader-schema='int' | the reader's schema is not a record",
            "format=json | no option reader-schema",
            "reader-schema='int';registry-url=http://127.0.0.1:1;accept=all | ALL",
            "reader-schema='int';registry-url=http://127.0.0.1:1;subjects=a | subjects must be a JSON array of texts",
            "reader-schema='int';registry-url=http://127.0.0.1:1;credentials=missing | no secret named 'missing'",
        })
        void optionsAreCheckedOnTheDriver(String text, String error) {
            String[] pairs = Arrays.stream(text.split(";"))
                    .flatMap(option -> Stream.of(option.split("=", 2)))
                    .toArray(String[]::new);
            if (error.equals("none")) {
                function(pairs);
            } else {
                RuntimeException wrong = assertThrows(RuntimeException.class, () -> function(pairs));
                assertTrue(wrong.getMessage().contains(error), wrong.getMessage());
            }
        }

        @Test
        void optionNamesIgnoreCase() {
            assertEquals("[5]", decode(function("Reader-Schema", RECORD, "WRITER-SCHEMA", RECORD), new byte[] {10}));
        }

        @Test
        void theTextOfTheFunctionShowsNoCredentials() {
            Secrets.put("DecodeFunctionTest", "user:hidden");
            try {
                DecodeFunction function = function(
                        "reader-schema", RECORD, "registry-url", "http://127.0.0.1:1", "credentials", "DecodeFunctionTest");
                assertFalse((function + function.canonicalName() + function.name()).contains("hidden"));
            } finally {
                Secrets.remove("DecodeFunctionTest");
            }
        }
    }

    @Test
    void eachTaskDecodesWithItsOwnCopyOfTheFunction() throws IOException, ClassNotFoundException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        new ObjectOutputStream(bytes).writeObject(function(AVRO));
        DecodeFunction copy = (DecodeFunction) new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray())).readObject();
        assertEquals("[5]", decode(copy, new byte[] {10}));
    }

    @Test
    void threadsDoNotShareARow() throws Exception {
        DecodeFunction function = function(AVRO);
        ExecutorService threads = Executors.newFixedThreadPool(2);
        try {
            Future<?> one = threads.submit(() -> decodeMany(function, 1));
            Future<?> two = threads.submit(() -> decodeMany(function, 2));
            one.get();
            two.get();
        } finally {
            threads.shutdown();
        }
    }

    private static void decodeMany(DecodeFunction function, int value) {
        byte[] record = {(byte) (2 * value)};
        for (int round = 0; round < 20_000; round++) {
            assertEquals(value, function.invoke(record).getStruct(0, 1).getInt(0));
        }
    }

    @Test
    void aNullRecordHasNeitherValueNorError() {
        var result = function(AVRO).invoke(null);
        assertTrue(result.isNullAt(0) && result.isNullAt(1) && result.isNullAt(2));
    }

    @Test
    void theFunctionIsEvaluatedOncePerRow() {
        assertFalse(function(AVRO).isDeterministic());
        assertFalse(function(AVRO).isResultNullable());
    }

    @Test
    void theCatalogHasOnlyTheFunctionDecode() {
        DecodeCatalog catalog = new DecodeCatalog();
        catalog.initialize("taxi", new CaseInsensitiveStringMap(Map.of()));
        assertEquals("decode", catalog.listFunctions(new String[0])[0].name());
        assertThrows(NoSuchFunctionException.class, () -> catalog.loadFunction(Identifier.of(new String[0], "encode")));
        assertThrows(NoSuchFunctionException.class, () -> catalog.loadFunction(Identifier.of(new String[] {"a"}, "decode")));
    }
}
