package io.lakefeed.decode;

/**
 * How much memory one record may take when it is decoded: {@value #TIMES} times its size and {@value #FREE} bytes.
 *
 * <p>Few bytes can stand for much memory: a million items that take no bytes each, a short item for which the reader has a
 * thousand defaults. A format charges for what a record can repeat, <em>before</em> it allocates it: items of arrays, entries
 * of maps, messages that are there again. What the schema alone sets, such as the row itself and the structs that it
 * always has, is not charged: its size is bounded by the number of columns, and wide tables of small records are right.
 *
 * <p>Not thread safe; {@link RecordReader} restarts it for each record.
 */
final class MemoryBudget {
    /** Bytes of memory for each byte of the record. */
    static final int TIMES = 64;
    /** Bytes of memory that each record may take. */
    static final int FREE = 64 * 1024;
    /** The object that stands for a value, its header and the reference to it; for {@link #charge}. */
    static final int OBJECT = 24;

    /** What is kept back for what no format charges: the row itself, the result and its error. */
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
     * @throws BadRecord if there are not as many left
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
     * @throws BadRecord if there are not as many left
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
