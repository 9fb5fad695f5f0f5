package io.lakefeed.kinesis;

import java.util.List;
import software.amazon.awssdk.services.kinesis.model.Record;

/** Reads one shard ahead of the batches, on the driver, to count records and to find the last sequence number. */
final class ShardWalk {
    /**
     * How long a walk reads for one batch. In a long stretch without records, the next batch continues where it
     * stopped.
     */
    private static final long PATIENCE_MS = 5_000;

    private final int shard;
    private final Retention retention;
    private final Mark begun;
    private final ShardCursor cursor;
    private StreamOffset.At at;
    private StreamOffset.At reported;
    private boolean done;

    ShardWalk(DataStream stream, int shard, StreamOffset.At from, Retention retention) {
        this.shard = shard;
        this.retention = retention;
        this.begun = from.mark();
        this.at = from;
        this.reported = from;
        this.cursor = new ShardCursor(stream, shard, from.mark());
    }

    int shard() {
        return shard;
    }

    StreamOffset.At at() {
        return at;
    }

    /** Returns whether the walk is at {@code start}, the position at which a batch begins. */
    boolean isAt(StreamOffset.At start) {
        return start.at() == at.at() && start.mark().where().equals(at.mark().where());
    }

    /** Returns whether {@link #advance} has reached the time {@code until}, or the shard's end. */
    boolean isDone() {
        return done;
    }

    /**
     * Advances by at most {@code most} records, or to the newest record.
     *
     * @param until a time in ms since 1970: stop after the records that arrived before it; null for no limit
     * @throws StreamFailure if records may be lost
     */
    void advance(long most, Long until) {
        if (done) {
            return;
        }
        long end = at.at() + most;
        long patience = System.currentTimeMillis() + PATIENCE_MS;
        boolean finished = false;
        boolean more = true;
        while (more && at.at() < end) {
            long asked = System.currentTimeMillis();
            ShardCursor.Page page = cursor.next(end - at.at());
            String lost = retention.lost(shard, begun, cursor);
            if (lost != null && at.equals(reported)) {
                throw StreamFailure.lost(lost);
            }
            List<Record> records = page.records();
            if (!records.isEmpty()) {
                Record last = records.get(records.size() - 1);
                long arrived = last.approximateArrivalTimestamp().toEpochMilli();
                at = new StreamOffset.At(at.at() + records.size(), new Mark(last.sequenceNumber(), arrived, false));
                done = until != null && arrived > until;
            }
            finished = page.finished();
            if (page.atTip() && !finished) {
                at = new StreamOffset.At(at.at(), new Mark(at.mark().where(), Math.max(asked, at.mark().seen()), false));
                done = until != null;
            }
            more = !finished && !page.atTip() && !done && (until != null || System.currentTimeMillis() < patience);
        }
        if (finished) {
            at = new StreamOffset.At(at.at(), new Mark(at.mark().where(), at.mark().seen(), true));
            done = true;
        }
    }
}
