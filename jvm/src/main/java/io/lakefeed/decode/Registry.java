package io.lakefeed.decode;

import com.fasterxml.jackson.core.JsonProcessingException;
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
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Writers' schemas by id from a schema registry with Confluent's REST API.
 *
 * <p>One for each registry and JVM: a schema is fetched once, by whichever thread needs it first, since an id
 * never changes its meaning. What the registry does decides what follows:
 *
 * <ul>
 *   <li>it answers: the schema, or a {@link BadRecord} if the id is unknown (error code 404xx) or of another kind;
 *   <li>no connection, a timeout, 5xx or 429: retried with growing pauses for the time allowed, then a {@link
 *       RegistryException}: the task fails, no record is blamed;
 *   <li>anything else (401, 403, a page of another server): a {@link RegistryException} at once.
 * </ul>
 *
 * <p>An unknown id is remembered for {@value #UNKNOWN_SECONDS} s, so that a flood of records with random ids
 * asks once for each; at most {@value #UNKNOWN_MOST} are remembered.
 */
final class Registry {
    private static final int UNKNOWN_SECONDS = 30;
    private static final int UNKNOWN_MOST = 10_000;
    private static final Duration CONNECT = Duration.ofSeconds(5);
    private static final Duration ANSWER = Duration.ofSeconds(10);
    private static final long FIRST_PAUSE_MILLIS = 100;
    private static final long LONGEST_PAUSE_MILLIS = 5_000;
    private static final int DEEPEST_REFERENCE = 32;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<Address, Registry> ALL = new ConcurrentHashMap<>();

    private record Address(String url, String credentials) {}

    private record Known(String kind, Object schema) {}

    private record Unknown(String why, long until) {}

    /** An id is wrong for one kind of schema and right for another. */
    private record Asked(int id, String kind) {}

    private final String url;
    private final String authorization;
    private final HttpClient http;
    private final ReentrantLock fetching = new ReentrantLock();
    private final Map<Integer, Known> schemas = new ConcurrentHashMap<>();
    private final Map<Asked, Unknown> unknown = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Asked, Unknown> eldest) {
            return size() > UNKNOWN_MOST;
        }
    };

    /** This JVM's client of the registry at {@code url}; {@code credentials} is {@code user:password} or null. */
    static Registry at(String url, String credentials) {
        return ALL.computeIfAbsent(new Address(url, credentials), Registry::new);
    }

    private Registry(Address address) {
        url = address.url.endsWith("/") ? address.url.substring(0, address.url.length() - 1) : address.url;
        authorization = address.credentials == null
                ? null
                : "Basic " + Base64.getEncoder().encodeToString(address.credentials.getBytes(StandardCharsets.UTF_8));
        http = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .connectTimeout(CONNECT)
                .build();
    }

    /**
     * The schema with this id, references resolved.
     *
     * @param patience how long to go on asking a registry that does not answer
     * @param wanted what it has to be
     * @throws BadRecord if the registry answers that there is no such schema, or that it is of another kind
     * @throws RegistryException if it does not answer in time, or refuses
     */
    <T> T schema(int id, Duration patience, WriterSchema<T> wanted) {
        Known found = schemas.get(id);
        if (found != null) {
            return as(wanted, found, id);
        }
        if (id < 0) {
            throw new BadRecord("unknown schema id " + id + ": ids are positive");
        }
        long deadline = System.nanoTime() + patience.toNanos();
        try {
            if (!fetching.tryLock(patience.toNanos(), TimeUnit.NANOSECONDS)) {
                throw silent(patience, "another thread is still waiting for it");
            }
            try {
                return as(wanted, fetch(id, deadline, patience, wanted), id);
            } finally {
                fetching.unlock();
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new RegistryException("was not asked", "interrupted while waiting for " + url);
        }
    }

    @SuppressWarnings("unchecked")
    private static <T> T as(WriterSchema<T> wanted, Known found, int id) {
        requireKind(wanted, found.kind, "schema id " + id);
        return (T) found.schema;
    }

    private static void requireKind(WriterSchema<?> wanted, String kind, String what) {
        if (!kind.equals(wanted.kind())) {
            throw new BadRecord(what + " is " + kind + ", not " + wanted.kind());
        }
    }

    private Known fetch(int id, long deadline, Duration patience, WriterSchema<?> wanted) throws InterruptedException {
        Known found = schemas.get(id);
        if (found != null) {
            return found;
        }
        Unknown before = unknown.get(new Asked(id, wanted.kind()));
        if (before != null && System.nanoTime() - before.until < 0) {
            throw new BadRecord(before.why);
        }
        try {
            JsonNode answer = get("/schemas/ids/" + id, deadline, patience, "unknown schema id " + id);
            Known schema = new Known(kindOf(answer), parse(answer, "schema id " + id, wanted, deadline, patience));
            schemas.put(id, schema);
            return schema;
        } catch (BadRecord definite) {
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(UNKNOWN_SECONDS);
            unknown.put(new Asked(id, wanted.kind()), new Unknown(definite.getMessage(), until));
            throw definite;
        }
    }

    private static String kindOf(JsonNode answer) {
        return answer.path("schemaType").asText("AVRO");
    }

    private Object parse(JsonNode answer, String what, WriterSchema<?> wanted, long deadline, Duration patience)
            throws InterruptedException {
        requireKind(wanted, kindOf(answer), what);
        List<String> referred = new ArrayList<>();
        collect(answer, what, wanted, referred, new HashSet<>(), 0, deadline, patience);
        try {
            return wanted.parse(answer.path("schema").asText(), referred);
        } catch (RuntimeException invalid) {
            throw new BadRecord(what + " is not a valid " + wanted + " schema: " + invalid.getMessage());
        }
    }

    /** Adds the texts of all schemas that {@code answer} refers to, each after those that it needs itself. */
    private void collect(
            JsonNode answer,
            String what,
            WriterSchema<?> wanted,
            List<String> referred,
            Set<String> seen,
            int depth,
            long deadline,
            Duration patience)
            throws InterruptedException {
        if (depth > DEEPEST_REFERENCE) {
            throw new BadRecord(what + " is nested in more than " + DEEPEST_REFERENCE + " references");
        }
        for (JsonNode reference : answer.path("references")) {
            String subject = reference.path("subject").asText();
            String version = reference.path("version").asText();
            if (seen.add(subject + " " + version)) {
                String path = "/subjects/" + encoded(subject) + "/versions/" + encoded(version);
                String name = "version " + version + " of subject " + subject + ", which " + what + " refers to";
                JsonNode found = get(path, deadline, patience, "unknown " + name);
                requireKind(wanted, kindOf(found), name);
                collect(found, name, wanted, referred, seen, depth + 1, deadline, patience);
                referred.add(found.path("schema").asText());
            }
        }
    }

    private static String encoded(String segment) {
        return URLEncoder.encode(segment, StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** The JSON object at {@code path}; asks again until {@code deadline} while nobody answers. */
    private JsonNode get(String path, long deadline, Duration patience, String ifMissing)
            throws InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + path))
                .timeout(ANSWER)
                .header("Accept", "application/vnd.schemaregistry.v1+json, application/json");
        if (authorization != null) {
            request.header("Authorization", authorization);
        }
        long pause = FIRST_PAUSE_MILLIS;
        while (true) {
            String trouble;
            try {
                HttpResponse<String> response = http.send(request.build(), HttpResponse.BodyHandlers.ofString());
                int status = response.statusCode();
                if (status != 429 && status < 500) {
                    return read(status, response.body(), path, ifMissing);
                }
                trouble = "HTTP status " + status;
            } catch (IOException nobody) {
                trouble = nobody.getClass().getSimpleName()
                        + (nobody.getMessage() == null ? "" : " (" + nobody.getMessage() + ")");
            }
            if (System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(pause) - deadline > 0) {
                throw silent(patience, trouble);
            }
            Thread.sleep(pause);
            pause = Math.min(2 * pause, LONGEST_PAUSE_MILLIS);
        }
    }

    private RegistryException silent(Duration patience, String trouble) {
        return new RegistryException(
                "does not answer", url + " gave no schema within " + patience.toSeconds() + " s; last: " + trouble);
    }

    private JsonNode read(int status, String body, String path, String ifMissing) {
        JsonNode answer = null;
        try {
            answer = JSON.readTree(body);
        } catch (JsonProcessingException notJson) {
            // Told below, as any other answer that no registry gives.
        }
        if (answer != null && status == 200 && answer.hasNonNull("schema")) {
            return answer;
        }
        if (status == 401 || status == 403) {
            throw new RegistryException("refuses the credentials", url + " answered with HTTP status " + status);
        }
        // 40401 subject, 40402 version, 40403 schema not found; a bare 404 may be any server's.
        if (answer != null && status == 404 && answer.path("error_code").asInt() / 100 == 404) {
            throw new BadRecord(ifMissing);
        }
        throw new RegistryException(
                "gave no usable answer",
                url + path + " answered with HTTP status " + status
                        + "; is it the address of a registry with Confluent's REST API?");
    }
}
