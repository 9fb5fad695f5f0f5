package io.lakefeed.decode;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.lakefeed.http.Login;
import io.lakefeed.http.Waits;
import io.lakefeed.http.WholeAnswer;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.stream.Stream;

/**
 * Sends requests to a schema registry with Confluent's REST API. Depending on the answer:
 *
 * <ul>
 *   <li>an object of the registry: returns its JSON, or throws a {@link BadRecord} for "not found" (error code 404xx);
 *   <li>no connection, no complete answer in time, 5xx or 429: repeats the request with growing pauses, for the allowed
 *       time; then throws a {@link RegistryException}, so that the task fails instead of making the record a dead
 *       letter;
 *   <li>any other answer (401, 403, another server's page): throws a {@link RegistryException} at once; if this client
 *       has had a valid answer before, repeats the request as without an answer.
 * </ul>
 */
class RegistryClient {
    private static final Duration CONNECT = Duration.ofSeconds(5);
    private static final Duration ANSWER = Duration.ofSeconds(10);
    private static final long FIRST_PAUSE_MILLIS = 100;
    private static final long LONGEST_PAUSE_MILLIS = 5_000;
    private static final ObjectMapper JSON = new ObjectMapper();

    /** The most bytes of an answer: a registry stores a schema in one Kafka record, which limits its size. */
    private static final int MOST_BYTES = 16 << 20;

    private final String url;
    private final List<String> addresses;
    private final Login login;
    private final HttpClient http;
    private volatile boolean answered;
    /** The index of the address for the next request; a request without an answer moves it to the next address. */
    private volatile int asked;

    /**
     * Creates a client.
     *
     * @param url one or more addresses of the registry, separated by commas
     * @param credentials as {@link Login} reads them, or null
     */
    RegistryClient(String url, String credentials) {
        this.url = url;
        addresses = Stream.of(url.split(",")).map(each -> each.replaceAll("/+$", "")).toList();
        http = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .connectTimeout(CONNECT)
                .build();
        login = Login.of(credentials, http);
    }

    /** How long to wait for an unavailable registry, and the time when the wait ends. */
    record Patience(Duration all, long deadline) {
        static Patience of(Duration all) {
            return new Patience(all, System.nanoTime() + all.toNanos());
        }

        /** Returns the remaining nanoseconds; 0 or less after the end of the wait. */
        long left() {
            return deadline - System.nanoTime();
        }
    }

    /**
     * Returns the JSON of the schema at {@code path}.
     *
     * @param missing the error for a schema that the registry does not have
     */
    JsonNode get(String path, Patience patience, String missing) throws InterruptedException {
        return get(path, patience, missing, answer -> answer.path("schema").isTextual());
    }

    /** Returns the JSON at {@code path}; {@code usable} decides if an answer is a registry's. */
    JsonNode get(String path, Patience patience, String missing, Predicate<JsonNode> usable)
            throws InterruptedException {
        try {
            return answer(path, patience, missing, usable);
        } finally {
            Waits.ended(url);
        }
    }

    private JsonNode answer(String path, Patience patience, String missing, Predicate<JsonNode> usable)
            throws InterruptedException {
        long pause = FIRST_PAUSE_MILLIS;
        boolean renewed = false;
        while (true) {
            String trouble;
            try {
                // Give each attempt a second or more, so that even the last one can succeed.
                Duration within = Duration.ofNanos(
                        Math.min(ANSWER.toNanos(), Math.max(patience.left(), TimeUnit.SECONDS.toNanos(1))));
                String authorization = login.header();
                HttpResponse<byte[]> response =
                        WholeAnswer.of(http, request(path, authorization), within, MOST_BYTES);
                int status = response.statusCode();
                // A token can become invalid before it expires: get another token, but only once.
                if (status == 401 && !renewed && login.renew(authorization)) {
                    renewed = true;
                    continue;
                }
                trouble = "HTTP status " + status;
                if (status != 429 && status < 500) {
                    try {
                        JsonNode found = read(status, json(response.body()), path, missing, usable);
                        answered = true;
                        return found;
                    } catch (RegistryException unusable) {
                        // The registry has answered before, so this answer comes from a proxy, for instance while the
                        // registry restarts.
                        if (!answered) {
                            throw unusable;
                        }
                    }
                }
            } catch (IOException unreachable) {
                trouble = unreachable.getClass().getSimpleName()
                        + (unreachable.getMessage() == null ? "" : " (" + unreachable.getMessage() + ")");
            }
            asked = (asked + 1) % addresses.size();
            if (patience.left() < TimeUnit.MILLISECONDS.toNanos(pause)) {
                throw silent(patience, trouble);
            }
            Waits.began(url, trouble);
            Thread.sleep(pause);
            pause = Math.min(2 * pause, LONGEST_PAUSE_MILLIS);
        }
    }

    /** Returns the request for a path of Confluent's API. */
    HttpRequest request(String path, String authorization) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(addresses.get(asked) + path).normalize())
                .header("Accept", "application/vnd.schemaregistry.v1+json, application/json");
        return (authorization == null ? request : request.header("Authorization", authorization)).build();
    }

    /** Returns the error if no registry has answered with a schema in time. */
    RegistryException silent(Patience patience, String trouble) {
        return new RegistryException(
                "does not answer", url + " gave no schema within " + patience.all.toSeconds() + " s; last: " + trouble);
    }

    RegistryException interrupted() {
        Thread.currentThread().interrupt();
        return new RegistryException("was not asked", "interrupted while waiting for " + url);
    }

    private static JsonNode json(byte[] body) {
        try {
            return JSON.readTree(body);
        } catch (IOException notJson) {
            return null;
        }
    }

    /** Returns the JSON object of an answer, or null if it is not JSON; throws the error that the answer stands for. */
    JsonNode read(int status, JsonNode answer, String path, String missing, Predicate<JsonNode> usable) {
        if (answer != null && status == 200 && usable.test(answer)) {
            return answer;
        }
        if (status == 401 || status == 403) {
            throw new RegistryException("refuses the credentials", url + " answered with HTTP status " + status);
        }
        // The registry's codes 40401, 40402 and 40403 mean that a subject, version or schema was not found. A 404
        // without such a code may come from any server.
        if (answer != null && status == 404 && answer.path("error_code").asInt() / 100 == 404) {
            throw new BadRecord(missing);
        }
        throw new RegistryException(
                "gave no usable answer",
                url + path + " answered with HTTP status " + status
                        + (status / 100 == 3 ? ", which leads to another address: name that" : "")
                        + (path.startsWith("/schemas/guids/")
                                ? "; the records' headers have GUIDs, which not every registry knows"
                                : "; is it the address of a registry with Confluent's REST API?"));
    }
}
