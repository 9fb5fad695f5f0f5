package io.lakefeed.checkpoint;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
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
 * Proves that a store lets exactly one of several conditional PUTs win, before a query relies on it.
 *
 * <p>Done once for each bucket and endpoint in a JVM, when a query starts: as many PUTs as there are writers, one
 * DELETE, and once GetBucketVersioning.
 */
final class StoreProof {
    private final Bucket bucket;
    private boolean given;

    StoreProof(Bucket bucket) {
        this.bucket = bucket;
    }

    /**
     * Returns if the store was found good, now or before.
     *
     * @param directory where the probe object is written and removed again
     * @throws IOException the store refuses or ignores {@code If-None-Match}, or cannot be reached
     */
    synchronized void demand(Path directory, Settings settings) throws IOException {
        if (given || settings.allowUnconditionalWrites()) {
            return;
        }
        Path probe = new Path(directory, "_lakefeed-probe-" + UUID.randomUUID());
        List<Attempt> attempts;
        try {
            attempts = race(probe, settings.probeWriters());
        } finally {
            bucket.remove(List.of(Bucket.key(probe)));
        }
        for (Attempt attempt : attempts) {
            if (attempt.failure() != null) {
                if (ConditionalWrite.isNotSupported(attempt.failure())) {
                    throw refusal("rejects conditional writes (If-None-Match: *)", attempt.failure());
                }
                throw attempt.failure();
            }
        }
        long winners = attempts.stream().filter(Attempt::won).count();
        if (winners != 1) {
            throw refusal("let " + winners + " of " + attempts.size() + " racing conditional writes"
                    + " (If-None-Match: *) to one key succeed; exactly one must", null);
        }
        given = true;
    }

    private record Attempt(boolean won, IOException failure) {}

    private List<Attempt> race(Path probe, int writers) throws IOException {
        ExecutorService threads = Executors.newFixedThreadPool(writers);
        try {
            List<Callable<Attempt>> tasks = new ArrayList<>();
            for (int writer = 0; writer < writers; writer++) {
                tasks.add(() -> attempt(probe));
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

    private Attempt attempt(Path probe) {
        String id = UUID.randomUUID().toString();
        try {
            var out = ConditionalWrite.create(bucket.files(), probe, id, true);
            out.write(id.getBytes(StandardCharsets.UTF_8));
            out.close();
            return new Attempt(true, null);
        } catch (IOException failed) {
            return new Attempt(false, ConditionalWrite.isConflict(failed) ? null : failed);
        }
    }

    private IOException refusal(String what, IOException cause) {
        return new IOException("The object store " + what + ", so it cannot keep two queries off one checkpoint ("
                + bucket + "). Use a store that honours If-None-Match on PUT. To go on with this one, at the risk that"
                + " two queries on one checkpoint lose or double rows, set spark.hadoop."
                + Settings.ALLOW_UNCONDITIONAL_WRITES + "=true", cause);
    }
}
