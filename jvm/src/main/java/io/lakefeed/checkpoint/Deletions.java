package io.lakefeed.checkpoint;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.util.ShutdownHookManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Collects the deletes of a bucket. Deletes of expired log entries wait until they fill a request, the oldest has
 * waited long enough, or the JVM ends. After a crash the entries still exist; Spark lists and deletes them after its
 * next start.
 *
 * <p>While a delete waits, this JVM treats the key as deleted. Before the key is written again, {@link #revive} cancels
 * the delete.
 */
final class Deletions {
    private static final Logger LOG = LoggerFactory.getLogger(Deletions.class);
    /** The shutdown hook's priority: after Spark's (50), which may delete, before Hadoop's (10), which closes S3A. */
    private static final int BEFORE_FILE_SYSTEMS_CLOSE = 20;

    private final Bucket bucket;
    private final int batch;
    private final long age;
    /** The keys that the store has not confirmed as deleted; written under the lock, and read without it. */
    private final Map<String, Boolean> waiting = new ConcurrentSkipListMap<>();
    private ScheduledExecutorService clock;
    private boolean flushPlanned;

    Deletions(Bucket bucket, Settings settings) {
        this.bucket = bucket;
        this.batch = settings.deleteBatch();
        this.age = settings.deleteAgeMillis();
    }

    boolean isDeleted(String key) {
        return waiting.containsKey(key);
    }

    synchronized void later(String key) throws IOException {
        waiting.put(key, true);
        if (waiting.size() >= batch) {
            flush();
        } else {
            planFlush();
        }
    }

    synchronized void now(String key) throws IOException {
        waiting.put(key, true);
        flush();
    }

    /** Cancels the waiting delete of a key that is about to be written. */
    void revive(String key, boolean overwrite) throws IOException {
        if (!waiting.containsKey(key)) {
            return;
        }
        synchronized (this) {
            if (waiting.containsKey(key)) {
                if (!overwrite) {
                    bucket.removal.remove(List.of(key));
                }
                waiting.remove(key);
            }
        }
    }

    synchronized void flush() throws IOException {
        if (waiting.isEmpty()) {
            return;
        }
        List<String> keys = List.copyOf(waiting.keySet());
        bucket.removal.remove(keys);
        keys.forEach(waiting::remove);
    }

    private void planFlush() {
        if (clock == null) {
            clock = Executors.newSingleThreadScheduledExecutor(work -> {
                Thread thread = new Thread(work, "lakefeed-checkpoint-deletes");
                thread.setDaemon(true);
                return thread;
            });
            ShutdownHookManager.get().addShutdownHook(this::flushOrWarn, BEFORE_FILE_SYSTEMS_CLOSE);
        }
        if (!flushPlanned) {
            flushPlanned = true;
            clock.schedule(this::flushOrWarn, age, TimeUnit.MILLISECONDS);
        }
    }

    private synchronized void flushOrWarn() {
        flushPlanned = false;
        try {
            flush();
        } catch (IOException | RuntimeException failed) {
            LOG.warn("Expired checkpoint entries in {} cannot be deleted ({}); lakefeed tries again with the next ones.",
                    bucket, failed.toString());
        }
    }
}
