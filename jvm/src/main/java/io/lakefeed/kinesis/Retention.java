package io.lakefeed.kinesis;

import java.time.Instant;

/**
 * How long a stream keeps its records, and what that means for a reader.
 *
 * @param ms milliseconds from a record's arrival on
 */
record Retention(long ms) {
    /** Clocks differ, and what arrives is not numbered at once. */
    private static final long MARGIN_MS = 5 * 60_000L;

    /** Whether something that arrived after all that was read can be gone by now. */
    boolean hasReached(Mark mark) {
        return mark.seen() > 0 && System.currentTimeMillis() - mark.seen() > ms - MARGIN_MS;
    }

    /** What may be lost for one who goes on after a mark; null if nothing is. */
    String lost(int shard, Mark mark, ShardCursor cursor) {
        boolean there = mark.sequenceNumber() != null && !cursor.isMarkGone();
        if (there || mark.finished() || !hasReached(mark)) {
            return null;
        }
        return DataStream.shardId(shard) + ": the feed has read it up to " + Instant.ofEpochMilli(mark.seen())
                + (mark.sequenceNumber() == null ? "" : ", sequence number " + mark.sequenceNumber())
                + "; the stream keeps " + ms / 3_600_000 + " hours, and what came after that may have been removed before it was read";
    }
}
