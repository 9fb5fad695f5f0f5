package io.lakefeed.decode;

/**
 * The memory that decoding one record may take: {@value #TIMES} times its size and {@value #FREE} bytes.
 *
 * <p>A few bytes can mean much memory: a million items of no bytes each, or a short item for which the reader has a
 * thousand defaults. A format charges for everything that a record can repeat, <em>before</em> it allocates it: items
 * of arrays, entries of maps, repeated messages. What the schema fixes, such as the row and its structs, is not
 * charged: the number of columns bounds it, and wide tables of small records are legitimate.
 *
 * <p>Not thread safe; {@link RecordReader} restarts it for each record.
 */
final class MemoryBudget {
    /** Bytes of memory for each byte of the record. */
    static final int TIMES = 64;
    /** Bytes of memory that every record may take. */
    static final int FREE = 64 * 1024;
    /** The size of a value's object, with its header and the reference to it; for {@link #charge}. */
    static final int OBJECT = 24;

    /** A reserve for what no format charges: the row itself, the result and its error. */
    private static final int UNCHARGED = 4 * 1024;

    private long left;
    private long limit;

    /** Starts a record of {@code length} bytes. */
    void start(int length) {
        limit = (long) length * TIMES + FREE;
        left = limit - UNCHARGED;
    }

    /**
     * Takes {@code bytes} out of the budget.
     *
     * @throws BadRecord if the budget is exceeded
     */
    void charge(long bytes) {
        left -= bytes;
        if (left < 0) {
            throw exceeded();
        }
    }

    /**
     * Takes {@code count} times {@code bytes} out of the budget; {@code count} may be any number.
     *
     * @throws BadRecord if the budget is exceeded
     */
    void charge(long count, int bytes) {
        if (count > left) {
            throw exceeded();
        }
        charge(count * bytes);
    }

    private BadRecord exceeded() {
        return new BadRecord("too large when decoded: it would take more than the " + limit + " bytes of memory that a record of "
                + (limit - FREE) / TIMES + " bytes may take");
    }
}
