package io.lakefeed.http;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** Keeps the servers that the tasks of this JVM and, on the driver, of the executors wait for. */
public final class Waits {
    private static final long KEPT_NANOS = TimeUnit.SECONDS.toNanos(10);
    private static final Map<String, String> OWN = new ConcurrentHashMap<>();
    private static final Map<String, Said> EXECUTORS = new ConcurrentHashMap<>();

    private record Said(String waits, long at) {}

    private Waits() {}

    /** Notes that a task asks a server again, which has given this answer. */
    public static void began(String server, String answer) {
        OWN.put(server, answer);
    }

    /** Notes that no task waits for a server any more. */
    public static void ended(String server) {
        OWN.remove(server);
    }

    /** Returns a server that tasks of this JVM wait for, with its answer; empty if there is none. */
    public static String own() {
        return OWN.entrySet().stream()
                .findFirst()
                .map(each -> each.getKey() + ": " + each.getValue())
                .orElse("");
    }

    /** Replaces what an executor waits for. One that says nothing more for some seconds is gone, and waits no more. */
    public static void executorSaid(String executor, String waits) {
        EXECUTORS.put(executor, new Said(waits, System.nanoTime()));
    }

    /** Returns a server that a task of any executor waits for, with its answer; empty if there is none. */
    public static String any() {
        String own = own();
        if (!own.isEmpty()) {
            return own;
        }
        EXECUTORS.values().removeIf(each -> each.waits.isEmpty() || System.nanoTime() - each.at > KEPT_NANOS);
        return EXECUTORS.values().stream().findFirst().map(Said::waits).orElse("");
    }
}
