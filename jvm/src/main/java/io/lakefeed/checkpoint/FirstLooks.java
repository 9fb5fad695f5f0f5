package io.lakefeed.checkpoint;

import java.io.IOException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.Path;

/**
 * Remembers the listing of a checkpoint location at the start of a query. One LIST of everything below the location
 * replaces the requests for its {@code metadata} and for each of its logs, and Spark's checks that the location is
 * empty. A second LIST is sent only if the first answer was truncated.
 *
 * <p>A listing is valid for a minute, at most until its query writes to {@code offsets}, because then executors write
 * below the location, too. The conditional PUT detects another driver's write.
 */
final class FirstLooks {
    private static final long FRESH_NANOS = TimeUnit.MINUTES.toNanos(1);

    private final Bucket bucket;
    private final Map<Path, Look> looks = new ConcurrentHashMap<>();

    FirstLooks(Bucket bucket) {
        this.bucket = bucket;
    }

    /** Starts a query on {@code root}, with a new listing. */
    void begin(Path root) {
        looks.values().removeIf(Look::isOld);
        looks.put(root, new Look(root));
    }

    /** Returns whether {@code path} exists; empty if the listing cannot answer. */
    Optional<Boolean> shows(Path path) throws IOException {
        Look look = of(path);
        return look == null ? Optional.empty() : look.shows(path);
    }

    /** Returns the length of a file directly below the location; empty if the listing cannot answer. */
    Optional<Long> length(Path path) {
        Look look = of(path);
        return look == null ? Optional.empty() : look.length(path);
    }

    /** Returns all objects below a directory of the location; empty if the listing cannot answer. */
    Optional<List<Bucket.Item>> below(Path directory) throws IOException {
        Look look = of(directory);
        return look == null ? Optional.empty() : look.below(directory);
    }

    void touched(Path path) {
        Look look = of(path);
        if (look != null) {
            look.touched(path);
        }
    }

    /** Forgets the listings of {@code path} and of all directories above and below it, because it will be deleted. */
    void forget(Path path) {
        looks.keySet().removeIf(root -> Bucket.prefix(path).startsWith(Bucket.prefix(root))
                || Bucket.prefix(root).startsWith(Bucket.prefix(path)));
    }

    /** Returns the object of a log's directory; Spark opens a source's log twice, and gets the same object. */
    LogDirectory log(Path directory, int budget) {
        Look look = LogDirectory.isOfSource(directory) ? of(directory) : null;
        return look == null
                ? new LogDirectory(bucket, directory, budget)
                : look.sources.computeIfAbsent(directory, each -> new LogDirectory(bucket, each, budget));
    }

    private Look of(Path path) {
        for (Path root = path.getParent(); root != null; root = root.getParent()) {
            Look look = looks.get(root);
            if (look != null) {
                return look.isOld() ? null : look;
            }
        }
        return null;
    }

    private final class Look {
        private final Path root;
        private final long begun = System.nanoTime();
        private final Map<Path, LogDirectory> sources = new ConcurrentHashMap<>();
        private final Set<String> touched = new HashSet<>();
        /** The names directly below the root, in the form of {@link Bucket#names}; null until they are needed. */
        private Map<String, Long> names;

        /** All objects below the root; null if one answer did not have all of them. */
        private List<Bucket.Item> all;

        Look(Path root) {
            this.root = root;
        }

        boolean isOld() {
            return System.nanoTime() - begun > FRESH_NANOS;
        }

        synchronized Optional<Boolean> shows(Path path) throws IOException {
            String name = nameBelowRoot(path);
            if (touched.contains(name) || touched.contains(LogDirectory.OFFSETS)) {
                return Optional.empty();
            }
            load();
            if (!names.containsKey(name)) {
                return Optional.of(false);
            }
            return path.getParent().equals(root) ? Optional.of(true) : Optional.empty();
        }

        synchronized Optional<List<Bucket.Item>> below(Path directory) throws IOException {
            if (touched.contains(nameBelowRoot(directory))) {
                return Optional.empty();
            }
            load();
            String prefix = Bucket.prefix(directory);
            return Optional.ofNullable(all)
                    .map(items -> items.stream()
                            .filter(each -> each.key().startsWith(prefix))
                            .toList());
        }

        private void load() throws IOException {
            if (names != null) {
                return;
            }
            all = bucket.below(root).orElse(null);
            if (all == null) {
                names = bucket.names(root);
                return;
            }
            names = new HashMap<>();
            int begin = Bucket.prefix(root).length();
            for (Bucket.Item each : all) {
                String name = each.key().substring(begin);
                int end = name.indexOf('/');
                names.put(end < 0 ? name : name.substring(0, end), end < 0 ? each.length() : -1L);
            }
        }

        synchronized Optional<Long> length(Path path) {
            String name = nameBelowRoot(path);
            boolean isKnown = names != null && path.getParent().equals(root) && !touched.contains(name);
            return Optional.ofNullable(isKnown ? names.get(name) : null).filter(length -> length >= 0);
        }

        synchronized void touched(Path path) {
            touched.add(nameBelowRoot(path));
        }

        private String nameBelowRoot(Path path) {
            Path below = path;
            while (!below.getParent().equals(root)) {
                below = below.getParent();
            }
            return below.getName();
        }
    }
}
