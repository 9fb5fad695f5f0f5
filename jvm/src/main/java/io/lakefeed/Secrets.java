package io.lakefeed;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Secrets of this JVM by name.
 *
 * <p>The driver puts them in through py4j. A function of ours is configured with a secret's <em>name</em>;
 * the value is copied into the function object when Spark binds it, and travels to the executors inside the
 * serialised plan only. So it stands in no Spark conf, no plan text, no event log and no command line.
 */
public final class Secrets {
    private static final Map<String, String> VALUES = new ConcurrentHashMap<>();

    private Secrets() {}

    /** Stores {@code value} under {@code name}, in place of an earlier one. */
    public static void put(String name, String value) {
        VALUES.put(name, value);
    }

    /** Forgets {@code name}. */
    public static void remove(String name) {
        VALUES.remove(name);
    }

    /** Whether there is a secret of this name. */
    public static boolean has(String name) {
        return VALUES.containsKey(name);
    }

    /**
     * The secret called {@code name}.
     *
     * @throws IllegalStateException if there is none in this JVM
     */
    public static String get(String name) {
        String value = VALUES.get(name);
        if (value == null) {
            throw new IllegalStateException(
                    "No secret named '" + name + "' in this JVM: put it with io.lakefeed.Secrets.put first");
        }
        return value;
    }
}
