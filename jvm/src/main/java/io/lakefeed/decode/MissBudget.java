package io.lakefeed.decode;

import java.util.concurrent.TimeUnit;

/**
 * Bounds the time spent on schemas that the registry does not have: {@value #SECONDS} s at once, and a tenth of the
 * time after that. It counts time and not requests, because waiting is what stops a feed.
 */
final class MissBudget {
    private static final int SECONDS = 5;
    private static final int SHARE = 10;
    private static final long FULL = TimeUnit.SECONDS.toNanos(SECONDS);

    private long left = FULL;
    private long at = System.nanoTime();

    /** Returns whether there is time left for a request. */
    synchronized boolean allows() {
        refill();
        return left > 0;
    }

    /** Charges the time of an answer "no such schema". */
    synchronized void charge(long nanoseconds) {
        refill();
        left -= nanoseconds;
    }

    private void refill() {
        long now = System.nanoTime();
        left = Math.min(FULL, left + (now - at) / SHARE);
        at = now;
    }
}
