package io.lakefeed.kinesis;

import java.util.List;
import software.amazon.awssdk.services.kinesis.model.ExpiredIteratorException;
import software.amazon.awssdk.services.kinesis.model.GetRecordsResponse;
import software.amazon.awssdk.services.kinesis.model.Record;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;

/**
 * Reads one shard in order, from a mark. Not thread safe.
 *
 * <p>The cursor begins <em>at</em> the last read record, and skips it. If this record is missing, retention has removed
 * it, and perhaps later records, too. Kinesis itself would silently continue with the oldest existing record.
 */
final class ShardCursor {
    /** The most records that one request returns. */
    static final int MOST = 10_000;

    private final DataStream stream;
    private final int shard;
    private final Mark from;
    private String last;
    private String iterator;
    private boolean finished;
    private boolean atMark;
    private boolean markGone;

    /**
     * The result of one request.
     *
     * @param records the records in order; can be empty although the shard has more records
     * @param atTip whether the shard had no more records at the time of the request
     * @param finished whether the shard is closed and has no more records
     */
    record Page(List<Record> records, boolean atTip, boolean finished) {}

    ShardCursor(DataStream stream, int shard, Mark from) {
        this.stream = stream;
        this.shard = shard;
        this.from = from;
        this.finished = from.finished();
        this.last = from.sequenceNumber();
        this.atMark = last != null;
    }

    /** Returns at most {@code most} of the next records, with one request. */
    Page next(long most) {
        if (finished) {
            return new Page(List.of(), true, true);
        }
        if (iterator == null) {
            iterator = begun();
        }
        int limit = (int) Math.min(MOST, atMark ? most + 1 : most);
        GetRecordsResponse answer;
        try {
            answer = stream.records(iterator, limit);
        } catch (ExpiredIteratorException old) {
            iterator = begun();
            answer = stream.records(iterator, limit);
        }
        iterator = answer.nextShardIterator();
        finished = iterator == null;
        boolean atTip = answer.millisBehindLatest() != null && answer.millisBehindLatest() == 0;
        List<Record> records = answer.records();
        if (atMark && (!records.isEmpty() || atTip || finished)) {
            atMark = false;
            markGone = records.isEmpty() || !records.get(0).sequenceNumber().equals(last);
            records = markGone ? records : records.subList(1, records.size());
        }
        if (!records.isEmpty()) {
            last = records.get(records.size() - 1).sequenceNumber();
        }
        return new Page(records, atTip, finished);
    }

    /** Returns whether the last read record no longer exists; known after the first records or the shard's end. */
    boolean isMarkGone() {
        return markGone;
    }

    private String begun() {
        if (atMark) {
            return stream.iterator(shard, ShardIteratorType.AT_SEQUENCE_NUMBER, last, null);
        }
        if (last != null) {
            return stream.iterator(shard, ShardIteratorType.AFTER_SEQUENCE_NUMBER, last, null);
        }
        return from.since() == null
                ? stream.iterator(shard, ShardIteratorType.TRIM_HORIZON, null, null)
                : stream.iterator(shard, ShardIteratorType.AT_TIMESTAMP, null, from.since());
    }
}
