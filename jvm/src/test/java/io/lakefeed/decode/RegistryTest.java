package io.lakefeed.decode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import io.lakefeed.Json;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.avro.Schema;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class RegistryTest {
    private static final Duration PATIENCE = Duration.ofSeconds(5);
    private static final String RECORD = "{\\'type\\':\\'record\\',\\'name\\':\\'R\\',\\'fields\\':[]}";

    private final Map<String, String> answers = new ConcurrentHashMap<>();
    private final List<String> requests = new CopyOnWriteArrayList<>();
    private HttpServer server;
    private Registry registry;

    /**
     * Starts a server with an answer ({@code status body}) for each path; if a path has several lines, each request
     * takes the next line.
     */
    @BeforeEach
    void start() throws IOException {
        server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", exchange -> {
            String path = exchange.getRequestURI().getRawPath();
            requests.add(path);
            String all = answers.getOrDefault(path, "404 {'error_code':40403,'message':'Schema not found'}");
            String[] several = all.split("\n", 2);
            if (several.length > 1) {
                answers.put(path, several[1]);
            }
            String[] answer = several[0].split(" ", 2);
            byte[] body = Json.quoted(answer[1]).getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(Integer.parseInt(answer[0]), body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        registry = Registry.at("http://127.0.0.1:" + server.getAddress().getPort() + "/", null, null, null);
    }

    @AfterEach
    void stop() {
        server.stop(0);
    }

    private Schema schema(int id) {
        return registry.schema(id, PATIENCE, WriterSchema.AVRO);
    }

    private String refusal(int id) {
        return assertThrows(BadRecord.class, () -> schema(id)).getMessage();
    }

    @Test
    void aSchemaIsFetchedOnce() {
        answers.put("/schemas/ids/7", "200 {'schema':'" + RECORD + "'}");
        assertEquals("R", schema(7).getName());
        assertSame(schema(7), schema(7));
        assertEquals(List.of("/schemas/ids/7"), requests);
    }

    @Test
    void anUnknownIdIsRequestedOnce() {
        assertEquals("unknown schema id 8", refusal(8));
        assertEquals("unknown schema id 8", refusal(8));
        assertEquals(1, requests.size());
    }

    @Test
    void aNegativeIdIsNotRequested() {
        assertTrue(refusal(-1).startsWith("unknown schema id -1"));
        assertEquals(0, requests.size());
    }

    @Test
    void aSchemaOfTheWrongKindIsRefused() {
        answers.put("/schemas/ids/7", "200 {'schemaType':'JSON','schema':'{}'}");
        assertEquals("schema id 7 is JSON, not AVRO", refusal(7));
        assertEquals("{}", registry.schema(7, PATIENCE, WriterSchema.JSON), "right for another kind");
    }

    @Test
    void anInvalidSchemaIsRefusedWithoutASecondRequest() {
        answers.put("/schemas/ids/7", "200 {'schema':'{}'}");
        assertTrue(refusal(7).startsWith("schema id 7 is not a valid Avro schema"), refusal(7));
        assertEquals(1, requests.size(), "it is not fetched for each record");
    }

    @Test
    void referencesAreParsedBeforeTheSchemasThatUseThem() {
        answers.put("/schemas/ids/7", "200 {'schema':'{\\'type\\':\\'array\\',\\'items\\':\\'B\\'}',"
                + "'references':[{'name':'B','subject':'b c/d','version':2}]}");
        answers.put("/subjects/b%20c%2Fd/versions/2", "200 {'schema':'{\\'type\\':\\'record\\',\\'name\\':\\'B\\',\\'fields\\':"
                + "[{\\'name\\':\\'a\\',\\'type\\':\\'A\\'}]}','references':[{'name':'A','subject':'a','version':1}]}");
        answers.put("/subjects/a/versions/1", "200 {'schema':'{\\'type\\':\\'record\\',\\'name\\':\\'A\\',\\'fields\\':[]}'}");
        assertEquals("A", schema(7).getElementType().getField("a").schema().getName());
    }

    @Test
    void aMissingReferenceIsRefused() {
        answers.put("/schemas/ids/7", "200 {'schema':'\\'B\\'','references':[{'name':'B','subject':'b','version':2}]}");
        assertEquals("unknown version 2 of subject b, which schema id 7 refers to", refusal(7));
    }

    @Test
    void referencesInACycleAreFetchedOnce() {
        answers.put("/schemas/ids/7", "200 {'schema':'" + RECORD + "','references':[{'name':'B','subject':'b','version':1}]}");
        answers.put("/subjects/b/versions/1",
                "200 {'schema':'\\'int\\'','references':[{'name':'B','subject':'b','version':1}]}");
        assertEquals("R", schema(7).getName());
        assertEquals(2, requests.size());
    }

    @Test
    void aRequestIsSentAgainAfterAnOutage() {
        answers.put("/schemas/ids/7", "503 {}\n429 {}\n200 {'schema':'" + RECORD + "'}");
        assertEquals("R", schema(7).getName());
        assertEquals(3, requests.size());
    }

    @ParameterizedTest(name = "status {0}: {1}")
    @CsvSource({
        "401, refuses the credentials",
        "403, refuses the credentials",
        "404, gave no usable answer", // no error code of a registry, so the page of another server
        "302, gave no usable answer",
        "200, gave no usable answer",
    })
    void anUnusableAnswerIsAnErrorOfTheRegistry(int status, String reason) {
        answers.put("/schemas/ids/7", status + " {}");
        RegistryException failed = assertThrows(RegistryException.class, () -> schema(7));
        assertTrue(failed.getMessage().contains(reason), failed.getMessage());
        assertEquals(1, requests.size());
    }

    @Test
    void theClientFailsAfterThePatienceHasPassed() {
        answers.put("/schemas/ids/7", "503 {}");
        RegistryException failed = assertThrows(
                RegistryException.class, () -> registry.schema(7, Duration.ofMillis(250), WriterSchema.AVRO));
        assertTrue(failed.getMessage().contains("HTTP status 503"), failed.getMessage());
    }

    @Test
    void aSchemaUnderTheWrongSubjectIsRefused() {
        answers.put("/schemas/ids/7/versions", "200 [{'subject':'a-value','version':1},{'subject':'b-value','version':3}]");
        registry.requireSubject(7, Set.of("b-value", "c-value"), PATIENCE);
        registry.requireSubject(7, Set.of("a-value"), PATIENCE);
        BadRecord bad = assertThrows(BadRecord.class, () -> registry.requireSubject(7, Set.of("c-value"), PATIENCE));
        assertTrue(bad.getMessage().contains("not registered under c-value"), bad.getMessage());
        assertEquals(1, requests.size(), "the subjects of a schema are remembered");
    }

    @Test
    void callersWithTheSameAddressAndLoginShareARegistry() {
        assertSame(Registry.at("http://x", "a:b", null, null), Registry.at("http://x", "a:b", null, null));
        assertTrue(Registry.at("http://x", "a:b", null, null) != Registry.at("http://x", "a:c", null, null));
    }
}
