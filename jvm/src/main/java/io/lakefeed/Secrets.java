package io.lakefeed;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Stores the secrets of this JVM by name.
 *
 * <p>The driver's Python process stores the secrets. A function is configured with the <em>name</em> of a secret. The
 * value is copied into the function object when Spark binds it, and reaches the executors only inside the serialised
 * plan. So the value is in no Spark setting, plan text, event log or command line.
 */
public final class Secrets {
    private static final Map<String, String> VALUES = new ConcurrentHashMap<>();

    private Secrets() {}

    /** Stores a secret, and replaces a secret of the same name. */
    public static void put(String name, String value) {
        VALUES.put(name, value);
    }

    public static void remove(String name) {
        VALUES.remove(name);
    }

    public static boolean has(String name) {
        return VALUES.containsKey(name);
    }

    /**
     * Returns the secret of this name.
     *
     * @throws IllegalStateException if this JVM has none
     */
    public static String get(String name) {
        String value = VALUES.get(name);
        if (value == null) {
            throw new IllegalStateException(
                    "this JVM has no secret named '" + name + "': put it with io.lakefeed.Secrets.put first");
        }
        return value;
    }
}
