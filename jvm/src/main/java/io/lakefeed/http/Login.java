package io.lakefeed.http;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.concurrent.TimeUnit;

/**
 * Provides the {@code Authorization} header of requests: a user's password, a given token, or tokens that this class
 * fetches with a client's credentials (OAuth 2.0, RFC 6749, section 4.4) and renews before they expire.
 */
public final class Login {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration ANSWER = Duration.ofSeconds(10);
    private static final int MOST_BYTES = 1 << 20;
    /** How long a token is used if the server does not report how long it is valid. */
    private static final long UNKNOWN_SECONDS = 60;

    private final HttpClient http;
    /** The header, if it is always the same; null without a login, or if tokens are fetched. */
    private final String fixed;

    private final JsonNode client;
    private String token;
    private long renewAt;

    private Login(HttpClient http, String fixed, JsonNode client) {
        this.http = http;
        this.fixed = fixed;
        this.client = client;
    }

    /**
     * Reads credentials: {@code user:password}; or a JSON object with {@code token}, or with {@code token_url}, {@code
     * client_id}, {@code client_secret} and optionally {@code scope}. Null means that requests have no login.
     */
    public static Login of(String credentials, HttpClient http) {
        if (credentials == null || !credentials.startsWith("{\"token")) {
            return new Login(http, credentials == null ? null : basic(credentials), null);
        }
        JsonNode found;
        try {
            found = JSON.readTree(credentials);
        } catch (IOException malformed) {
            // The exception has no cause, because the cause's message would quote the credentials.
            throw new IllegalArgumentException("the credentials begin with '{\"token' but are not JSON: correct them");
        }
        boolean ready = found.has("token");
        return new Login(http, ready ? "Bearer " + found.get("token").asText() : null, ready ? null : found);
    }

    /**
     * Returns the value of the header {@code Authorization}; null without a login.
     *
     * @throws IOException if the server gives no token
     */
    public synchronized String header() throws IOException, InterruptedException {
        if (client == null) {
            return fixed;
        }
        if (token == null || System.nanoTime() - renewAt >= 0) {
            fetch();
        }
        return "Bearer " + token;
    }

    /** Drops a token that a server has refused; returns whether the next header will have a new token. */
    public synchronized boolean renew(String refused) {
        if (client == null) {
            return false;
        }
        if (("Bearer " + token).equals(refused)) {
            token = null;
        }
        return true;
    }

    private void fetch() throws IOException, InterruptedException {
        String url = client.path("token_url").asText();
        StringBuilder form = new StringBuilder("grant_type=client_credentials");
        if (client.has("scope")) {
            form.append("&scope=").append(encoded("scope"));
        }
        // Encode client id and secret before joining them (RFC 6749, section 2.3.1).
        String basic = basic(encoded("client_id") + ":" + encoded("client_secret"));
        HttpRequest request = HttpRequest.newBuilder(URI.create(url))
                .header("Authorization", basic)
                .header("Accept", "application/json")
                .header("Content-Type", "application/x-www-form-urlencoded")
                .POST(HttpRequest.BodyPublishers.ofString(form.toString()))
                .build();
        HttpResponse<byte[]> answer = WholeAnswer.of(http, request, ANSWER, MOST_BYTES);
        JsonNode json = answer.statusCode() == 200 ? JSON.readTree(answer.body()) : null;
        if (json == null || !json.path("access_token").isTextual()) {
            throw new IOException(url + " gave no token: HTTP status " + answer.statusCode());
        }
        token = json.get("access_token").asText();
        long seconds = json.path("expires_in").asLong(UNKNOWN_SECONDS);
        renewAt = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds) * 8 / 10;
    }

    private String encoded(String name) {
        return URLEncoder.encode(client.path(name).asText(), StandardCharsets.UTF_8);
    }

    private static String basic(String credentials) {
        return "Basic " + Base64.getEncoder().encodeToString(credentials.getBytes(StandardCharsets.UTF_8));
    }
}
