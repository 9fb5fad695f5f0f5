package io.lakefeed.checkpoint;

import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;

/**
 * The settings of the checkpoint. Spark takes each key with the prefix {@code spark.hadoop.}.
 *
 * @param allowUnconditionalWrites whether to accept a store that ignores {@code If-None-Match}; with such a store, two
 * queries on one checkpoint can lose or duplicate rows
 * @param probeWriters the number of writers that race when the store is checked, at least 2
 * @param answerFromMemory whether {@code exists} and {@code list} of log directories are answered without a request
 * @param cacheBytes the most bytes of entries that each log has in memory; 0 for none
 * @param deleteBatch the number of expired entries that one request deletes, 1 to 1000
 * @param deleteAgeMillis how long an expired entry may wait for its deletion
 */
record Settings(
        boolean allowUnconditionalWrites,
        int probeWriters,
        boolean answerFromMemory,
        int cacheBytes,
        int deleteBatch,
        long deleteAgeMillis) {
    static final String PREFIX = "lakefeed.checkpoint.";
    static final String ALLOW_UNCONDITIONAL_WRITES = PREFIX + "allow-unconditional-writes";
    static final String PROBE_WRITERS = PREFIX + "probe.writers";
    static final String ANSWER_FROM_MEMORY = PREFIX + "answer-from-memory";
    static final String CACHE_BYTES = PREFIX + "cache.bytes";
    static final String DELETE_BATCH = PREFIX + "delete.batch";
    static final String DELETE_AGE = PREFIX + "delete.max-age";
    private static final int LARGEST_DELETE = 1000;

    /** @throws IllegalArgumentException if a value is out of its range */
    static Settings of(Configuration conf) {
        return new Settings(
                conf.getBoolean(ALLOW_UNCONDITIONAL_WRITES, false),
                between(conf, PROBE_WRITERS, 2, 2, 64),
                conf.getBoolean(ANSWER_FROM_MEMORY, true),
                between(conf, CACHE_BYTES, 4 << 20, 0, Integer.MAX_VALUE),
                between(conf, DELETE_BATCH, LARGEST_DELETE, 1, LARGEST_DELETE),
                conf.getTimeDuration(DELETE_AGE, TimeUnit.MINUTES.toMillis(10), TimeUnit.MILLISECONDS));
    }

    private static int between(Configuration conf, String key, int otherwise, int least, int most) {
        int value = conf.getInt(key, otherwise);
        if (value < least || value > most) {
            throw new IllegalArgumentException(key + " is " + value + "; it must be from " + least + " to " + most);
        }
        return value;
    }
}
