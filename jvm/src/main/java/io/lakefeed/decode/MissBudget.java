package io.lakefeed.decode;

import java.util.concurrent.TimeUnit;

/**
 * How long a registry may be asked for schemas that it does not have: {@value #SECONDS} s at once, and a tenth of the
 * time after that. In time and not in requests, since it is waiting that stops a feed.
 */
final class MissBudget {
    private static final int SECONDS = 5;
    private static final int SHARE = 10;
    private static final long FULL = TimeUnit.SECONDS.toNanos(SECONDS);

    private long left = FULL;
    private long at = System.nanoTime();

    /** Whether there is time left to ask. */
    synchronized boolean allows() {
        refill();
        return left > 0;
    }

    /** Takes what an answer of "no such schema" has cost. */
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
