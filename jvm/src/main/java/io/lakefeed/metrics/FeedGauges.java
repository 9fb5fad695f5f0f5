package io.lakefeed.metrics;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The newest numbers of each feed of this driver, as gauges of a registry.
 *
 * <p>All numbers of a feed come in one call, as text: py4j would make a call of each entry of a map. A reader of a gauge
 * takes what came last, and waits for nothing.
 */
public final class FeedGauges {
    /** So many gauges of all feeds together; a registry keeps each until it is removed. */
    static final int MOST_GAUGES = 100_000;

    private static final Map<String, Map<String, Number>> FEEDS = new ConcurrentHashMap<>();
    private static final Set<String> REGISTERED = new HashSet<>();
    private static MetricRegistry registry;

    private FeedGauges() {}

    static synchronized void open(MetricRegistry opened) {
        registry = opened;
        REGISTERED.clear();
        FEEDS.clear();
        // Spark leaves out a plugin whose registry is empty at its start.
        registry.register("feeds", (Gauge<Integer>) FEEDS::size);
    }

    /** Takes no numbers for this registry any more; the last ones stay, as the sinks report once more after this. */
    static synchronized void close(MetricRegistry closed) {
        if (registry == closed) {
            registry = null;
            REGISTERED.clear();
        }
    }

    /** Whether Spark has started the plugin; else no sink reads the numbers. */
    public static synchronized boolean isOpen() {
        return registry != null;
    }

    /**
     * Replaces the numbers of a feed.
     *
     * @param lines a name and a number, with a space between them, on each line
     */
    public static synchronized void report(String feed, String lines) {
        if (registry == null) {
            return;
        }
        Map<String, Number> numbers = parse(lines);
        FEEDS.put(feed, numbers);
        for (String name : numbers.keySet()) {
            String full = feed + "." + name;
            if (REGISTERED.size() < MOST_GAUGES && REGISTERED.add(full)) {
                registry.register(full, (Gauge<Number>) () -> number(feed, name));
            }
        }
        removeOthers(feed, numbers.keySet());
    }

    private static void removeOthers(String feed, Set<String> names) {
        String prefix = feed + ".";
        REGISTERED.removeIf(full -> {
            boolean isGone = full.startsWith(prefix) && !names.contains(full.substring(prefix.length()));
            if (isGone && registry != null) {
                registry.remove(full);
            }
            return isGone;
        });
    }

    private static Number number(String feed, String name) {
        Number found = FEEDS.getOrDefault(feed, Map.of()).get(name);
        // It is not known any more, and a reader still holds the gauge.
        return found == null ? Double.NaN : found;
    }

    private static Map<String, Number> parse(String lines) {
        Map<String, Number> numbers = new HashMap<>();
        for (String line : lines.split("\n")) {
            int space = line.indexOf(' ');
            if (space > 0) {
                numbers.put(line.substring(0, space), number(line.substring(space + 1)));
            }
        }
        return numbers;
    }

    /** Whole numbers stay whole: a sink writes 4100000000, not 4.1E9. */
    private static Number number(String text) {
        try {
            return Long.valueOf(text);
        } catch (NumberFormatException hasFraction) {
            return Double.valueOf(text);
        }
    }
}
