package io.lakefeed.kinesis;

import java.time.Instant;

/**
 * How long a stream keeps its records, to detect records that a reader may have lost.
 *
 * @param ms the milliseconds that a record is kept after its arrival
 */
record Retention(long ms) {
    /** The margin for differences between clocks, and for the time from a record's arrival to its sequence number. */
    private static final long MARGIN_MS = 5 * 60_000L;

    /** Returns whether retention can have removed records that follow the last read record. */
    boolean hasReached(Mark mark) {
        return mark.seen() > 0 && System.currentTimeMillis() - mark.seen() > ms - MARGIN_MS;
    }

    /** Describes the records that may be lost for a reader that resumes at a mark; null if no records are lost. */
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
