package io.lakefeed.elasticsearch;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.lakefeed.elasticsearch.BulkFailure.Kind;
import io.lakefeed.elasticsearch.BulkTask.Action;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * Sends actions until the cluster has acknowledged all of them, or refused one.
 *
 * <p>A bulk request can succeed in part, so only the actions that an overloaded cluster rejected are sent again. Before
 * each retry, this class reads the ledger, because another driver may have taken over. Errors have the document's id
 * and the cluster's reason, but not the document's content.
 */
final class BulkWriter {
    /** The parameter that limits the answer to the status and error of each item. */
    private static final String FILTER = "?filter_path=errors,error,items.*.status,items.*.error.type,items.*.error.reason";

    private static final Set<Integer> PASSING = Set.of(429, 502, 503, 504);
    private static final long FIRST_PAUSE_MS = 100;
    private static final long LONGEST_PAUSE_MS = 5_000;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Cluster cluster;
    private final BulkTarget target;
    private int node;

    BulkWriter(Cluster cluster, BulkTarget target, int node) {
        this.cluster = cluster;
        this.target = target;
        this.node = node;
    }

    /** Writes the actions, and returns when the cluster has acknowledged all of them. */
    void write(List<Action> actions) {
        List<Action> left = actions;
        long pause = FIRST_PAUSE_MS;
        long deadline = deadline();
        while (true) {
            Sent sent = send(left);
            if (sent.left().isEmpty()) {
                return;
            }
            if (sent.left().size() < left.size()) {
                pause = FIRST_PAUSE_MS;
                deadline = deadline();
            }
            left = sent.left();
            if (System.nanoTime() > deadline) {
                throw new BulkFailure(Kind.AWAY, sent.reason());
            }
            sleep(pause);
            pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
            node++;
            requireFence();
        }
    }

    /** The result of a request: the actions to send again, and the reason for that. */
    private record Sent(List<Action> left, String reason) {
        static final Sent ALL = new Sent(List.of(), "");
    }

    private Sent send(List<Action> actions) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        actions.forEach(each -> body.writeBytes(each.lines()));
        HttpResponse<byte[]> answer;
        JsonNode document;
        try {
            answer = cluster.ask(node, target.bulk() + FILTER, body.toByteArray());
            document = answer.statusCode() == 200 ? JSON.readTree(answer.body()) : null;
        } catch (IOException away) {
            // If only the answer was cut off, the actions are written twice: the second write has the same version and
            // no effect.
            return new Sent(actions, described(away));
        } catch (InterruptedException killed) {
            throw interrupted(killed);
        }
        int status = answer.statusCode();
        if (PASSING.contains(status)) {
            return new Sent(actions, "HTTP status " + status);
        }
        if (status == 413 && actions.size() > 1) {
            int middle = actions.size() / 2;
            write(actions.subList(0, middle));
            return send(actions.subList(middle, actions.size()));
        }
        if (status == 401 || status == 403) {
            throw new BulkFailure(Kind.DENIED, "HTTP status " + status);
        }
        if (status != 200) {
            throw new BulkFailure(Kind.REFUSED, named(actions.get(0)) + "HTTP status " + status + reason(answer.body()));
        }
        return document.path("errors").asBoolean() ? sorted(actions, document.path("items")) : Sent.ALL;
    }

    /** Returns the actions to send again after an answer with errors; throws an error if one must not be sent again. */
    private static Sent sorted(List<Action> actions, JsonNode items) {
        if (items.size() != actions.size()) {
            return new Sent(actions, "an answer of " + items.size() + " items to " + actions.size());
        }
        List<Action> again = new ArrayList<>();
        String reason = "";
        for (int index = 0; index < actions.size(); index++) {
            // An item has the form {"index": {"status": 201}}: its only key is the name of the action.
            JsonNode item = items.get(index).elements().next();
            int status = item.path("status").asInt();
            // A delete of a document that does not exist has the status 404 without an error.
            if (status < 300 || (status == 404 && item.path("error").isMissingNode())) {
                continue;
            }
            Action action = actions.get(index);
            String described = named(action) + reason(item);
            if (PASSING.contains(status)) {
                again.add(action);
                reason = described;
            } else if (status == 409) {
                throw new BulkFailure(Kind.STALE, described);
            } else {
                throw new BulkFailure(status == 403 ? Kind.DENIED : Kind.REFUSED, described);
            }
        }
        return new Sent(again, reason);
    }

    /** Checks the fence: a driver that was cut off must not overwrite the documents of the driver that replaced it. */
    private void requireFence() {
        try {
            HttpResponse<byte[]> answer = cluster.ask(node, target.ledger(), null);
            if (answer.statusCode() == 200) {
                String fence = JSON.readTree(answer.body()).path("_source").path("fence").asText();
                if (!fence.equals(target.fence())) {
                    throw new BulkFailure(Kind.STALE, "the fence is " + fence);
                }
            }
        } catch (IOException away) {
            // Ignore a failed read of the ledger: the next request with documents fails in the same way, and reports
            // it.
        } catch (InterruptedException killed) {
            throw interrupted(killed);
        }
    }

    private long deadline() {
        return System.nanoTime() + TimeUnit.SECONDS.toNanos(target.patienceSeconds());
    }

    private static String named(Action action) {
        return "document " + action.id() + ": ";
    }

    private static String reason(JsonNode item) {
        return withoutContent(item.path("error").path("type").asText() + ": " + item.path("error").path("reason").asText());
    }

    private static String reason(byte[] body) {
        try {
            JsonNode error = JSON.readTree(body).path("error");
            return error.isObject() ? ", " + withoutContent(error.path("type").asText() + ": " + error.path("reason").asText()) : "";
        } catch (IOException noJson) {
            return "";
        }
    }

    /** Removes text in quotes or brackets from the cluster's reason, because it may be content of documents. */
    static String withoutContent(String reason) {
        return reason
                .replaceAll("(?si)[.:]?\\s*(preview of field's value|for input string|prefix of the first immense term).*", "")
                .replaceAll("(?si)\\b(value|date field|string)( |: )(\\[.*\\]|\\(.*\\)|'.*'|\".*\")", "$1 …");
    }

    private static String described(IOException away) {
        return away.getMessage() == null ? away.getClass().getSimpleName() : away.getMessage();
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException killed) {
            throw interrupted(killed);
        }
    }

    private static IllegalStateException interrupted(InterruptedException killed) {
        Thread.currentThread().interrupt();
        return new IllegalStateException("the task was killed", killed);
    }
}
