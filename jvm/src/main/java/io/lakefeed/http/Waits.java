package io.lakefeed.http;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * Remembers the servers that tasks of this JVM wait for; on the driver, also those that tasks of executors wait for.
 */
public final class Waits {
    private static final long KEPT_NANOS = TimeUnit.SECONDS.toNanos(10);
    private static final Map<String, String> OWN = new ConcurrentHashMap<>();
    private static final Map<String, Report> EXECUTORS = new ConcurrentHashMap<>();

    private record Report(String waits, long at) {}

    private Waits() {}

    /** Records that a task waits for a server: the task got this answer, and will repeat its request. */
    public static void began(String server, String answer) {
        OWN.put(server, answer);
    }

    public static void ended(String server) {
        OWN.remove(server);
    }

    /** Returns a server that a task of this JVM waits for, and the answer that made it wait; empty if no task waits. */
    public static String own() {
        return OWN.entrySet().stream()
                .findFirst()
                .map(each -> each.getKey() + ": " + each.getValue())
                .orElse("");
    }

    /** Stores the server that an executor waits for, instead of its last report. Reports are valid for ten seconds. */
    public static void putExecutor(String executor, String waits) {
        EXECUTORS.put(executor, new Report(waits, System.nanoTime()));
    }

    /** Returns the result of {@link #own} or, if it is empty, the same for tasks of executors, as last reported. */
    public static String any() {
        String own = own();
        if (!own.isEmpty()) {
            return own;
        }
        EXECUTORS.values().removeIf(each -> each.waits.isEmpty() || System.nanoTime() - each.at > KEPT_NANOS);
        return EXECUTORS.values().stream().findFirst().map(Report::waits).orElse("");
    }
}
