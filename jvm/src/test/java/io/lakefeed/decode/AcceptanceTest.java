package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakefeed.Json;
import org.apache.avro.Schema;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class AcceptanceTest {
    private static Schema schema(String name, String fields) {
        return AvroTypes.parsed(Json.quoted("{'type':'record'," + name + ",'fields':[" + fields + "]}"));
    }

    private static final String A = "{'name':'a','type':'int'}";
    private static final String B = "{'name':'b','type':'int'}";

    @Test
    void theOptionNamesTheRule() {
        assertEquals(Acceptance.SAME_RECORD, Acceptance.of(null));
        assertEquals(Acceptance.RESOLVABLE, Acceptance.of("resolvable"));
        assertEquals(Acceptance.ANY, Acceptance.of("any"));
        assertThrows(IllegalArgumentException.class, () -> Acceptance.of("other"));
    }

    @ParameterizedTest(name = "a {0} read as {1} is accepted: {2}")
    @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
        "'name':'R' | 'name':'R' | true",
        "'name':'R','namespace':'x' | 'name':'R','namespace':'y' | true", // namespaces do not count
        "'name':'R' | 'name':'S' | false",
        "'name':'R' | 'name':'S','aliases':['R'] | true",
        "'name':'R' | 'name':'S','aliases':['x.R'] | true",
        "'name':'R','aliases':['S'] | 'name':'S' | true",
        "'name':'R' | 'name':'S','aliases':['T'] | false",
    })
    void namesOfRecordsAreCompared(String writer, String reader, boolean accepted) {
        String refusal = Acceptance.SAME_RECORD.refusal(schema(writer, A), schema(reader, A));
        assertEquals(accepted, refusal == null, refusal);
        assertNull(Acceptance.ANY.refusal(schema(writer, A), schema(reader, A)));
    }

    @ParameterizedTest(name = "{0} as {1}: same record {2}, resolvable {3}")
    @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
        "{'name':'a','type':'int'} | {'name':'a','type':'int'} | true | true",
        "{'name':'a','type':'int'} | {'name':'b','type':'int'} | false | false", // no field in common
        "{'name':'a','type':'int'} | {'name':'b','type':'int','aliases':['a']} | true | true",
        "{'name':'a','type':'int','aliases':['b']} | {'name':'b','type':'int'} | true | true",
        "{'name':'a','type':'int'} | {'name':'a','type':'int'},{'name':'b','type':'int'} | true | false", // b is required
        "{'name':'a','type':'int'} | {'name':'a','type':'int'},{'name':'b','type':'int','default':1} | true | true",
        "{'name':'a','type':'int'} | {'name':'a','type':'int'},{'name':'b','type':['null','int']} | true | true",
    })
    void fieldsOfRecordsAreCompared(String writer, String reader, boolean same, boolean resolvable) {
        Schema written = schema("'name':'R'", writer);
        Schema read = schema("'name':'R'", reader);
        assertEquals(same, Acceptance.SAME_RECORD.refusal(written, read) == null);
        assertEquals(resolvable, Acceptance.RESOLVABLE.refusal(written, read) == null);
        assertNull(Acceptance.ANY.refusal(written, read));
    }

    @Test
    void aRecordMustFitOneBranchOfTheReadersUnion() {
        Schema reader = Schema.createUnion(
                Schema.create(Schema.Type.NULL), schema("'name':'R'", A), schema("'name':'S'", B));
        assertNull(Acceptance.SAME_RECORD.refusal(schema("'name':'S'", B), reader));
        String refusal = Acceptance.SAME_RECORD.refusal(schema("'name':'T'", A), reader);
        assertTrue(refusal.contains("is a T"), refusal);
    }

    @Test
    void everyBranchOfAWritersUnionIsChecked() {
        Schema writer = Schema.createUnion(schema("'name':'T'", A), schema("'name':'R'", A));
        Schema reader = schema("'name':'R'", A);
        AvroStep plan = Acceptance.SAME_RECORD.plan(writer, reader);
        assertNotNull(plan.read(BoundedDecoder.ofTrusted(new byte[] {2, 10})));
        BadRecord refused = assertThrows(BadRecord.class, () -> plan.read(BoundedDecoder.ofTrusted(new byte[] {0, 10})));
        assertTrue(refused.getMessage().contains("is a T"), refused.getMessage());
    }

    @Test
    void schemasThatAreNotRecordsAreNotChecked() {
        Schema number = Schema.create(Schema.Type.INT);
        assertNull(Acceptance.RESOLVABLE.refusal(number, schema("'name':'R'", A)));
        assertNull(Acceptance.RESOLVABLE.refusal(schema("'name':'R'", A), number));
    }
}
