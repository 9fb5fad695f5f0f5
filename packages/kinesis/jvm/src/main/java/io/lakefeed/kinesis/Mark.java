package io.lakefeed.kinesis;

/**
 * A position in a shard, after which reading continues.
 *
 * <p>Spark's offsets and the ledger contain a mark as the text {@code where[ seen:ms][ finished]}, beside the number of
 * records that were read.
 *
 * @param where the sequence number of the last record that was read; before the first record is read, {@code oldest} or
 *     {@code since:ms}
 * @param seen a time in ms since 1970: all records that arrived before it were read; 0 if unknown. It shows whether
 * retention can have removed unread records
 * @param finished whether the shard is closed and was read to its end
 */
record Mark(String where, long seen, boolean finished) {
    static final Mark OLDEST = new Mark("oldest", 0, false);
    private static final String SINCE = "since:";
    private static final String SEEN = "seen:";
    private static final String FINISHED = "finished";

    /** Returns the mark before the first record that arrives at {@code ms} (in ms since 1970) or later. */
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
                throw new IllegalArgumentException("this is not a position in a shard: " + text);
            }
        }
        return new Mark(where, seen, finished);
    }

    /** Returns the sequence number of the last record that was read; null if no record was read. */
    String sequenceNumber() {
        return where.equals(OLDEST.where) || where.startsWith(SINCE) ? null : where;
    }

    /**
     * Returns the time, in ms since 1970, at which reading begins; null if the mark is a sequence number or {@code
     * oldest}.
     */
    Long since() {
        return where.startsWith(SINCE) ? Long.valueOf(where.substring(SINCE.length())) : null;
    }

    @Override
    public String toString() {
        return where + (seen > 0 ? " " + SEEN + seen : "") + (finished ? " " + FINISHED : "");
    }
}
