package io.lakefeed.decode;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakefeed.decode.RegistryClient.Patience;
import io.lakefeed.protobuf.SchemaException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * Caches writers' schemas by id, which {@link RegistryClient} fetches.
 *
 * <p>A JVM has one object for each registry. The first thread that needs a schema fetches it; only threads that need
 * the same schema wait. One request is enough, because the schema of an id never changes.
 *
 * <p>An unknown id is remembered for {@value #UNKNOWN_SECONDS} s, so that many records with it cause one request; at
 * most {@value #UNKNOWN_MOST} ids are remembered. {@link MissBudget} limits the requests for many different unknown
 * ids: when it is spent, a new id is refused without a request. A second request for an id has a separate budget, so
 * that the second record finds a schema that was registered in the meantime.
 */
final class Registry {
    private static final int UNKNOWN_SECONDS = 30;
    private static final int UNKNOWN_MOST = 100_000;
    private static final int DEEPEST_REFERENCE = 32;
    private static final int MOST_REFERENCES = 1_000;
    private static final int MOST_CHARACTERS = 16 << 20;
    private static final Map<Address, Registry> ALL = new ConcurrentHashMap<>();

    /** Identifies a cache. The subject is included, because each context of a registry has its own ids. */
    private record Address(String url, String credentials, String subject, String glue) {}

    private record Known(String kind, Object schema) {}

    /**
     * Identifies a request by the schema's id or {@link SchemaReference}, and by the expected kind of schema: an id can
     * fail for one kind, and be right for another.
     */
    private record Asked(Object schema, String kind) {
        String what() {
            return schema instanceof Integer id ? "schema id " + id : schema.toString();
        }
    }

    /**
     * An id without a schema.
     *
     * @param why the error; null, to save memory, for the most common error, which is "unknown" and the id
     * @param until the time before which the id is not requested again; 0 if it was never requested
     */
    private record Unknown(String why, long until) {}

    /** Whether the registry is AWS Glue's, whose records begin with another header. */
    final boolean isGlue;

    private final RegistryClient client;
    private final String subject;
    private final String context;
    private final Map<Integer, Known> schemas = new ConcurrentHashMap<>();
    private final Map<Integer, Subjects> subjectsOf = new ConcurrentHashMap<>();
    private final Map<SchemaReference, Integer> ids = new ConcurrentHashMap<>();
    private final SingleFlight<Asked, Known> fetching;
    private final SingleFlight<SchemaReference, Integer> askingIds;
    private final SingleFlight<Integer, Subjects> askingSubjects;
    private final MissBudget firsts = new MissBudget();
    private final MissBudget seconds = new MissBudget();
    private final Map<Asked, Unknown> unknown = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Asked, Unknown> eldest) {
            return size() > UNKNOWN_MOST;
        }
    };

    /**
     * Returns this JVM's cache of a registry.
     *
     * @param credentials as {@link io.lakefeed.http.Login} reads them, or null
     * @param subject a subject in the context of the ids, if the registry has contexts; or null
     * @param glue the region and name of a registry of AWS Glue, see {@link GlueClient}; null for a registry with
     * Confluent's API
     */
    static Registry at(String url, String credentials, String subject, String glue) {
        return ALL.computeIfAbsent(new Address(url, credentials, subject, glue), Registry::new);
    }

    private Registry(Address address) {
        isGlue = address.glue != null;
        client = isGlue
                ? new GlueClient(address.url, address.glue, address.subject, address.credentials)
                : new RegistryClient(address.url, address.credentials);
        subject = address.subject;
        context = subject != null && subject.startsWith(":.") ? subject.substring(0, subject.indexOf(':', 1) + 1) : "";
        fetching = new SingleFlight<>(client);
        askingIds = new SingleFlight<>(client);
        askingSubjects = new SingleFlight<>(client);
    }

    /**
     * Returns the schema with this id, with its references resolved.
     *
     * @param patience how long to wait for an unavailable registry
     * @param required the expected kind
     * @throws BadRecord if the registry has no schema with this id, or the schema is of another kind
     * @throws RegistryException if the registry is unavailable, or refuses
     */
    <T> T schema(int id, Duration patience, WriterSchema<T> required) {
        Known found = schemas.get(id);
        if (found == null) {
            if (id < 0) {
                throw new BadRecord("unknown schema id " + id + ": ids are positive");
            }
            Asked asked = new Asked(id, required.kind());
            Patience until = Patience.of(patience);
            found = fetching.answer(
                    asked, until, () -> schemas.get(id), () -> budgeted(asked, () -> fetched(id, asked.what(), until, required)));
        }
        return as(required, found, id);
    }

    /**
     * Returns the id of the schema that a reference names.
     *
     * @throws BadRecord if the registry has no such schema
     * @throws RegistryException if the registry is unavailable, or refuses
     */
    int id(SchemaReference reference, Duration patience) {
        Integer found = ids.get(reference);
        if (found == null) {
            Asked asked = new Asked(reference, "");
            Patience until = Patience.of(patience);
            found = askingIds.answer(
                    reference, until, () -> ids.get(reference), () -> budgeted(asked, () -> askedId(reference, until)));
        }
        return found;
    }

    private Integer askedId(SchemaReference reference, Patience patience) throws InterruptedException {
        String unknown = "unknown " + reference;
        JsonNode answer = client.get(reference.path(), patience, unknown, reference.kind()::answers);
        JsonNode id = reference.kind().id(answer, context);
        if (!id.isIntegralNumber() || !id.canConvertToInt()) {
            throw new BadRecord(unknown);
        }
        ids.put(reference, id.intValue());
        return id.intValue();
    }

    @SuppressWarnings("unchecked")
    private static <T> T as(WriterSchema<T> required, Known found, int id) {
        requireKind(required, found.kind, "schema id " + id);
        return (T) found.schema;
    }

    private static void requireKind(WriterSchema<?> required, String kind, String what) {
        if (!kind.equals(required.kind())) {
            throw new BadRecord(what + " is " + kind + ", not " + required.kind());
        }
    }

    private Known fetched(int id, String what, Patience patience, WriterSchema<?> required) throws InterruptedException {
        String of = subject == null ? "" : "?subject=" + encoded(subject);
        JsonNode answer = client.get("/schemas/ids/" + id + of, patience, "unknown " + what);
        Known schema = new Known(kindOf(answer), new Fetch(what, patience, required).parsed(answer));
        schemas.put(id, schema);
        return schema;
    }

    /** Sends a request, unless the budget for unknown schemas is spent; remembers an unknown schema. */
    private <V> V budgeted(Asked asked, SingleFlight.Request<V> request) throws InterruptedException {
        MissBudget budget = budgetOf(asked);
        long began = System.nanoTime();
        try {
            return request.answer();
        } catch (BadRecord definite) {
            budget.charge(System.nanoTime() - began);
            String why = definite.getMessage();
            remember(asked, new Unknown(
                    why.equals("unknown " + asked.what()) ? null : why,
                    System.nanoTime() + TimeUnit.SECONDS.toNanos(UNKNOWN_SECONDS)));
            throw definite;
        }
    }

    /**
     * Returns the budget to which a request for this id is charged if the registry does not know the id.
     *
     * @throws BadRecord if the registry has recently not known the id, or the budget is spent
     */
    private MissBudget budgetOf(Asked asked) {
        Unknown before;
        synchronized (unknown) {
            before = unknown.get(asked);
        }
        if (before != null && before.until != 0 && System.nanoTime() - before.until < 0) {
            throw new BadRecord(before.why != null ? before.why : "unknown " + asked.what());
        }
        MissBudget budget = before == null ? firsts : seconds;
        if (!budget.allows()) {
            if (before == null) {
                remember(asked, new Unknown(null, 0));
            }
            throw new BadRecord("unknown " + asked.what()
                    + ": not looked up, since the registry did not have too many others");
        }
        return budget;
    }

    private void remember(Asked asked, Unknown id) {
        synchronized (unknown) {
            unknown.put(asked, id);
        }
    }

    /**
     * Requires that the schema with this id is registered under one of these subjects.
     *
     * @throws BadRecord if the schema is registered under none of the subjects
     * @throws RegistryException if the registry is unavailable, or refuses
     */
    void requireSubject(int id, Set<String> subjects, Duration patience) {
        Subjects found = usable(id, subjects);
        if (found == null) {
            Patience until = Patience.of(patience);
            found = askingSubjects.answer(id, until, () -> usable(id, subjects), () -> subjectsOf(id, until));
        }
        if (!found.any(subjects)) {
            throw new BadRecord("the schema is not registered under " + String.join(" or ", subjects));
        }
    }

    /** Returns the cached subjects of an id; null if they must be requested, because there may be a new one. */
    private Subjects usable(int id, Set<String> subjects) {
        Subjects found = subjectsOf.get(id);
        return found != null && (found.any(subjects) || System.nanoTime() - found.until < 0) ? found : null;
    }

    private Subjects subjectsOf(int id, Patience patience) throws InterruptedException {
        String path = "/schemas/ids/" + id + "/versions" + (context.isEmpty() ? "" : "?subject=" + encoded(subject));
        Subjects found = Subjects.of(client.get(path, patience, "unknown schema id " + id, JsonNode::isArray));
        subjectsOf.put(id, found);
        return found;
    }

    /** The subjects of a schema, and the time after which they may be requested again. */
    private record Subjects(Set<String> names, long until) {
        static Subjects of(JsonNode versions) {
            Set<String> names = new HashSet<>();
            versions.forEach(each -> names.add(each.path("subject").asText()));
            return new Subjects(names, System.nanoTime() + TimeUnit.SECONDS.toNanos(UNKNOWN_SECONDS));
        }

        boolean any(Set<String> required) {
            return !Collections.disjoint(names, required);
        }
    }

    private static String kindOf(JsonNode answer) {
        return answer.path("schemaType").asText("AVRO");
    }

    private static String encoded(String segment) {
        return URLEncoder.encode(segment, StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** Fetches one schema with its references, with limits for their number and size. */
    private final class Fetch {
        private final String what;
        private final Patience patience;
        private final WriterSchema<?> required;
        private final List<String> referred = new ArrayList<>();
        private final List<String> names = new ArrayList<>();
        private final Set<String> seen = new HashSet<>();
        private int characters;

        Fetch(String what, Patience patience, WriterSchema<?> required) {
            this.what = what;
            this.patience = patience;
            this.required = required;
        }

        Object parsed(JsonNode answer) throws InterruptedException {
            requireKind(required, kindOf(answer), what);
            collect(answer, what, 0);
            try {
                return required.parser().apply(answer.path("schema").asText(), referred);
            } catch (SchemaException invalid) {
                boolean own = invalid.reference() < 0;
                String of = own ? what : names.get(invalid.reference());
                String why = (own ? invalid : invalid.getCause()).getMessage();
                throw new BadRecord(of + " is not a valid " + required.name() + " schema: " + why);
            } catch (StackOverflowError deep) {
                throw new BadRecord(what + " is not a valid " + required.name() + " schema: nested too deeply");
            } catch (RuntimeException invalid) {
                throw new BadRecord(what + " is not a valid " + required.name() + " schema: " + invalid.getMessage());
            }
        }

        /** Adds the texts of the schemas that {@code answer} refers to; a schema follows the schemas that it needs. */
        private void collect(JsonNode answer, String of, int depth) throws InterruptedException {
            if (depth > DEEPEST_REFERENCE) {
                throw new BadRecord(of + " is nested in more than " + DEEPEST_REFERENCE + " references");
            }
            for (JsonNode reference : answer.path("references")) {
                String named = reference.path("subject").asText();
                String subject = named.startsWith(":.") ? named : context + named;
                String version = reference.path("version").asText();
                if (!seen.add(subject + " " + version)) {
                    continue;
                }
                String name = "version " + version + " of subject " + subject + ", which " + of + " refers to";
                String path = "/subjects/" + encoded(subject) + "/versions/" + encoded(version);
                JsonNode found = client.get(path, patience, "unknown " + name);
                requireKind(required, kindOf(found), name);
                String text = found.path("schema").asText();
                characters += text.length();
                if (seen.size() > MOST_REFERENCES || characters > MOST_CHARACTERS) {
                    throw new BadRecord(what + " refers to more than " + MOST_REFERENCES + " schemas, or "
                            + MOST_CHARACTERS + " characters of them");
                }
                collect(found, name, depth + 1);
                referred.add(text);
                names.add(name);
            }
        }
    }

    /**
     * Limits the time for requests with ids that the registry does not know: to {@value #SECONDS} s at first, and later
     * to a tenth of the elapsed time. The budget counts time instead of requests, because it is the waiting that delays
     * the feed.
     */
    static final class MissBudget {
        private static final int SECONDS = 5;
        private static final int SHARE = 10;
        private static final long FULL = TimeUnit.SECONDS.toNanos(SECONDS);

        private long left = FULL;
        private long at = System.nanoTime();

        synchronized boolean allows() {
            refill();
            return left > 0;
        }

        /** Charges the time of a request whose answer was "no such schema". */
        synchronized void charge(long nanoseconds) {
            refill();
            left -= nanoseconds;
        }

        private void refill() {
            long now = System.nanoTime();
            left = Math.min(FULL, left + (now - at) / SHARE);
            at = now;
        }
    }
}
