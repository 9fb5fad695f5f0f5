package io.lakefeed.decode;

/**
 * Limits the memory that decoding one record may take: {@value #TIMES} times its size and {@value #FREE} bytes.
 *
 * <p>A few bytes of a record can need much memory: they can announce a million items of zero bytes,
 * or be one short item whose thousand missing fields the reader fills with defaults. A format charges everything that a
 * record can repeat, such as items of arrays, entries of maps and repeated messages, <em>before</em> it allocates the
 * memory. The row and its structs are not charged, because their size depends on the number of columns, and wide tables
 * with small records are legitimate.
 *
 * <p>Not thread safe; {@link RecordReader} restarts it for each record.
 */
final class MemoryBudget {
    /** The bytes of memory that each byte of the record allows. */
    static final int TIMES = 64;

    /** The bytes of memory that each record may take, whatever its size. */
    static final int FREE = 64 * 1024;

    /** The bytes to charge for an object: those of its header, and of a reference to it. */
    static final int OBJECT = 24;

    /** The bytes for the objects that no format charges: the row, the result and the error. */
    private static final int UNCHARGED = 4 * 1024;

    private long left;
    private long limit;

    void start(int length) {
        limit = (long) length * TIMES + FREE;
        left = limit - UNCHARGED;
    }

    /**
     * Charges {@code bytes} to the budget.
     *
     * @throws BadRecord if the budget is exceeded
     */
    void charge(long bytes) {
        left -= bytes;
        if (left < 0) {
            throw exceeded();
        }
    }

    private BadRecord exceeded() {
        return new BadRecord("too large when decoded: it would take more than the " + limit + " bytes of memory that a record of "
                + (limit - FREE) / TIMES + " bytes may take");
    }
}
