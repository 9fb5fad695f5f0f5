package io.lakefeed.metrics;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Provides the newest numbers of this driver's feeds as gauges in Spark's metric registry.
 *
 * <p>Python reports all numbers of a feed in one call, as text: a map would take a py4j call for each entry. A gauge
 * returns the last reported number without a call.
 */
public final class FeedGauges {
    /** The most gauges of all feeds: a registry stores a gauge until it is removed. */
    static final int MOST_GAUGES = 100_000;

    private static final Map<String, Map<String, Number>> FEEDS = new ConcurrentHashMap<>();
    private static final Set<String> REGISTERED = new HashSet<>();
    private static MetricRegistry registry;

    private FeedGauges() {}

    static synchronized void open(MetricRegistry opened) {
        registry = opened;
        REGISTERED.clear();
        FEEDS.clear();
        // Register one gauge now, because Spark ignores a plugin whose registry is empty when the plugin starts.
        registry.register("feeds", (Gauge<Integer>) FEEDS::size);
    }

    /** Ends the reports to this registry. Its gauges stay, because Spark's sinks read them once more. */
    static synchronized void close(MetricRegistry closed) {
        if (registry == closed) {
            registry = null;
            REGISTERED.clear();
        }
    }

    /** Returns whether Spark has started the plugin; otherwise reports are useless, because no sink reads them. */
    public static synchronized boolean isOpen() {
        return registry != null;
    }

    /**
     * Replaces the numbers of a feed.
     *
     * @param lines the numbers, one on each line: a name, a space and a number
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
        // A sink may still have the gauge of a number that is no longer reported.
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

    /** Returns a whole number as a Long, so that a sink writes 4100000000 and not 4.1E9. */
    private static Number number(String text) {
        try {
            return Long.valueOf(text);
        } catch (NumberFormatException hasFraction) {
            return Double.valueOf(text);
        }
    }
}
