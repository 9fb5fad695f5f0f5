package io.lakefeed.http;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import io.lakefeed.Json;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.http.HttpClient;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class LoginTest {
    private final List<String> asked = new CopyOnWriteArrayList<>();
    private volatile int status = 200;
    private volatile String expires = ",'expires_in':3600";
    private HttpServer server;

    /** Starts a server whose tokens are {@code token-1}, {@code token-2}, … */
    @BeforeEach
    void start() throws IOException {
        server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", exchange -> {
            String form = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            asked.add(exchange.getRequestHeaders().getFirst("Authorization") + " " + form);
            byte[] body = Json.quoted("{'access_token':'token-" + asked.size() + "'" + expires + "}")
                    .getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(status, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }

    @AfterEach
    void stop() {
        server.stop(0);
    }

    private Login login(String more) {
        String url = "http://127.0.0.1:" + server.getAddress().getPort() + "/token";
        String client = "{'token_url':'" + url + "','client_id':'a:b','client_secret':'s e'" + more + "}";
        return Login.of(Json.quoted(client), HttpClient.newHttpClient());
    }

    private static String basic(String text) {
        return "Basic " + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    @Test
    void noCredentialsGiveNoHeader() throws Exception {
        Login none = Login.of(null, HttpClient.newHttpClient());
        assertNull(none.header());
        assertFalse(none.renew(null));
    }

    @Test
    void passwordsAndTokensGiveAFixedHeader() throws Exception {
        HttpClient http = HttpClient.newHttpClient();
        assertEquals(basic("user:pass"), Login.of("user:pass", http).header());
        assertEquals("Bearer abc", Login.of(Json.quoted("{'token':'abc'}"), http).header());
        // A user's name may begin with a brace, as credentials in JSON do.
        assertEquals(basic("{x:pass"), Login.of("{x:pass", http).header());
    }

    @Test
    void aTokenIsFetchedOnceWithEncodedCredentials() throws Exception {
        Login login = login(",'scope':'read write'");
        assertEquals("Bearer token-1", login.header());
        assertEquals("Bearer token-1", login.header());
        assertEquals(
                List.of(basic("a%3Ab:s+e") + " grant_type=client_credentials&scope=read+write"), asked);
    }

    @Test
    void aTokenIsFetchedAgainBeforeItExpires() throws Exception {
        expires = ",'expires_in':1";
        Login login = login("");
        assertEquals("Bearer token-1", login.header());
        Thread.sleep(900); // More than four fifths of the token's second have passed.
        assertEquals("Bearer token-2", login.header());
    }

    @Test
    void aTokenWithoutAnExpiryIsReused() throws Exception {
        expires = "";
        Login login = login("");
        assertEquals(login.header(), login.header());
    }

    @Test
    void aRefusedTokenIsReplacedOnlyOnce() throws Exception {
        Login login = login("");
        String refused = login.header();
        assertTrue(login.renew(refused));
        assertEquals("Bearer token-2", login.header());
        // If a second thread was refused with the old token, the new token must stay.
        assertTrue(login.renew(refused));
        assertEquals("Bearer token-2", login.header());
    }

    @Test
    void theErrorOfARefusedLoginNamesTheServerAndNoSecret() {
        status = 401;
        IOException refused = assertThrows(IOException.class, () -> login("").header());
        assertTrue(refused.getMessage().endsWith("/token gave no token: HTTP status 401"), refused.getMessage());
        assertFalse(refused.getMessage().contains("s e"));
    }

    @Test
    void brokenCredentialsAreNotQuoted() {
        RuntimeException broken = assertThrows(
                IllegalArgumentException.class, () -> Login.of("{\"token\": hush", HttpClient.newHttpClient()));
        assertFalse(broken.getMessage().contains("hush"));
        assertNull(broken.getCause());
    }
}
