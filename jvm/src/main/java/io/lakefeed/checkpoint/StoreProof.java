package io.lakefeed.checkpoint;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.fs.Path;

/**
 * Proves that a store lets exactly one of several conditional PUTs succeed, before a query relies on it.
 *
 * <p>The proof runs once for each bucket and endpoint in a JVM, when a query starts. It sends a PUT for each writer and
 * one DELETE. In a versioned bucket, the answer to the PUT has the version to delete. In other buckets,
 * GetBucketVersioning is sent first, because versioning may be suspended.
 */
final class StoreProof {
    private final Bucket bucket;
    private boolean given;

    StoreProof(Bucket bucket) {
        this.bucket = bucket;
    }

    /**
     * Runs the proof, unless the store has passed it already.
     *
     * @param directory where the probe object is written and removed
     * @throws IOException if the store refuses or ignores {@code If-None-Match}, or cannot be reached
     */
    synchronized void demand(Path directory, Settings settings) throws IOException {
        if (given || settings.allowUnconditionalWrites()) {
            return;
        }
        long winners = winners(directory, settings.probeWriters());
        if (winners == 0) {
            // The answer to the successful PUT was lost, and its retry was refused: repeat the race once.
            winners = winners(directory, settings.probeWriters());
        }
        if (winners != 1) {
            throw refusal("let " + winners + " of " + settings.probeWriters() + " racing conditional writes"
                    + " (If-None-Match: *) to one key succeed; exactly one must", null);
        }
        given = true;
    }

    private long winners(Path directory, int writers) throws IOException {
        String key = Bucket.key(new Path(directory, "_lakefeed-probe-" + UUID.randomUUID()));
        List<Attempt> attempts = List.of();
        try {
            attempts = race(key, writers);
        } finally {
            remove(key, attempts);
        }
        for (Attempt attempt : attempts) {
            if (attempt.failure() != null) {
                if (EntryOutput.ConditionalWrite.isNotSupported(attempt.failure())) {
                    throw refusal("rejects conditional writes (If-None-Match: *)", attempt.failure());
                }
                throw attempt.failure();
            }
        }
        return attempts.stream().filter(Attempt::won).count();
    }

    private void remove(String key, List<Attempt> attempts) throws IOException {
        List<Attempt> winners = attempts.stream().filter(Attempt::won).toList();
        if (winners.size() == 1 && attempts.stream().allMatch(each -> each.failure() == null)) {
            bucket.removal.removeNew(key, winners.get(0).version());
        } else {
            bucket.removal.remove(List.of(key));
        }
    }

    /** @param version the version of the object that was written; null if the bucket has no versions */
    private record Attempt(boolean won, String version, IOException failure) {}

    private List<Attempt> race(String key, int writers) throws IOException {
        ExecutorService threads = Executors.newFixedThreadPool(writers);
        try {
            List<Callable<Attempt>> tasks = new ArrayList<>();
            for (int writer = 0; writer < writers; writer++) {
                tasks.add(() -> attempt(key));
            }
            List<Attempt> attempts = new ArrayList<>();
            for (Future<Attempt> done : threads.invokeAll(tasks)) {
                attempts.add(done.get());
            }
            return attempts;
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new java.io.InterruptedIOException("interrupted while the store was probed");
        } catch (ExecutionException broken) {
            throw new IOException("The probe of " + bucket + " failed", broken.getCause());
        } finally {
            threads.shutdown();
        }
    }

    private Attempt attempt(String key) {
        try {
            return new Attempt(true, bucket.putIfAbsent(key, UUID.randomUUID().toString()), null);
        } catch (IOException failed) {
            return new Attempt(false, null, EntryOutput.ConditionalWrite.isConflict(failed) ? null : failed);
        }
    }

    private IOException refusal(String what, IOException cause) {
        return new IOException("The object store " + what + ", so it cannot keep two queries off one checkpoint ("
                + bucket + "). Use a store that honours If-None-Match on PUT. To use this one, at the risk that"
                + " two queries on one checkpoint lose or duplicate rows, set spark.hadoop."
                + Settings.ALLOW_UNCONDITIONAL_WRITES + "=true", cause);
    }
}
