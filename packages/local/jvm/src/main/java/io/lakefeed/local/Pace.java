package io.lakefeed.local;

import io.lakefeed.SqlFunction;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.types.DataTypes;

/**
 * {@code pace(bytes)} returns the bytes, and delays the tasks of this JVM so that together they do not exceed a rate.
 *
 * <p>A task takes a lock only once for all rows in a slot of {@value #SLOT_MILLIS} ms. No burst follows a pause,
 * because unused time is lost. The rate applies to each executor, not to the application. A killed task stops waiting.
 */
public final class Pace extends SqlFunction<byte[]> {
    private static final long serialVersionUID = 1L;
    private static final int SLOT_MILLIS = 10;
    private static final long LONGEST_SLEEP_MILLIS = 100;
    private static final Map<String, Clock> CLOCKS = new ConcurrentHashMap<>();

    private final String name;
    private final double rowsPerSecond;
    private transient Clock clock;
    private transient long rowsLeft;

    Pace(String name, double rowsPerSecond) {
        super("pace", "pace." + name, DataTypes.BinaryType, DataTypes.BinaryType);
        this.name = name;
        this.rowsPerSecond = rowsPerSecond;
    }

    /** The start of the next slot, which all tasks of the JVM share. */
    private static final class Clock {
        private long next = System.nanoTime();

        synchronized long take(long nanos) {
            next = Math.max(next, System.nanoTime());
            long begin = next;
            next += nanos;
            return begin;
        }
    }

    public synchronized byte[] invoke(byte[] value) {
        if (rowsLeft == 0) {
            waitForSlot();
        }
        rowsLeft--;
        return value;
    }

    private void waitForSlot() {
        if (clock == null) {
            clock = CLOCKS.computeIfAbsent(name + "@" + rowsPerSecond, each -> new Clock());
        }
        long rows = Math.max(1, (long) (rowsPerSecond * SLOT_MILLIS / 1000));
        long begin = clock.take((long) (rows * 1e9 / rowsPerSecond));
        try {
            for (long wait = begin - System.nanoTime(); wait > 0; wait = begin - System.nanoTime()) {
                Thread.sleep(Math.min(wait / 1_000_000 + 1, LONGEST_SLEEP_MILLIS));
                TaskContext task = TaskContext.get();
                if (task != null && task.isInterrupted()) {
                    throw new InterruptedException("the task was stopped");
                }
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("the task was stopped while pace() waited", stopped);
        }
        rowsLeft = rows;
    }
}
