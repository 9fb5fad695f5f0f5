package io.lakefeed.kinesis;

/**
 * A position in a shard, after which reading continues.
 *
 * <p>As text {@code where[ seen:ms][ finished]}, in Spark's offsets and in the ledger, beside the number of records
 * that were read.
 *
 * @param where the sequence number of the last record that was read; before the first {@code oldest} or {@code
 *     since:ms}
 * @param seen a time in ms since 1970: all records that arrived before were read; 0 if unknown. It shows whether
 *     retention can have removed unread records
 * @param finished whether the shard is closed and was read to its end
 */
record Mark(String where, long seen, boolean finished) {
    static final Mark OLDEST = new Mark("oldest", 0, false);
    private static final String SINCE = "since:";
    private static final String SEEN = "seen:";
    private static final String FINISHED = "finished";

    /** Returns the position before all records that arrive at this time or later. */
    static Mark since(long ms) {
        return new Mark(SINCE + ms, ms, false);
    }

    static Mark of(String text) {
        String where = null;
        long seen = 0;
        boolean finished = false;
        for (String each : text.split(" ")) {
            if (where == null) {
                where = each;
            } else if (each.startsWith(SEEN)) {
                seen = Long.parseLong(each.substring(SEEN.length()));
            } else if (each.equals(FINISHED)) {
                finished = true;
            } else {
                throw new IllegalArgumentException("this is no position in a shard: " + text);
            }
        }
        return new Mark(where, seen, finished);
    }

    /** Returns the sequence number of the last record that was read, or null. */
    String sequenceNumber() {
        return where.equals(OLDEST.where) || where.startsWith(SINCE) ? null : where;
    }

    /** Returns the time in ms since 1970 from which records are read; null if this is no such position. */
    Long since() {
        return where.startsWith(SINCE) ? Long.valueOf(where.substring(SINCE.length())) : null;
    }

    @Override
    public String toString() {
        return where + (seen > 0 ? " " + SEEN + seen : "") + (finished ? " " + FINISHED : "");
    }
}
