package io.lakefeed.produce;

import io.lakefeed.SqlFunction;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.types.DataTypes;

/**
 * {@code pace(bytes)} returns the bytes, no faster than a rate for all tasks of this JVM together.
 *
 * <p>It assigns time in slots of up to {@value #SLOT_MILLIS} ms, so that a million rows a second do not take a lock
 * each. Unused time is lost: no burst follows a pause. Each executor has the whole rate. A killed task stops waiting.
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
        super("pace", "produce." + name, DataTypes.BinaryType, DataTypes.BinaryType);
        this.name = name;
        this.rowsPerSecond = rowsPerSecond;
    }

    /** The start of the next slot, shared by all tasks of the JVM. */
    private static final class Clock {
        private long next = System.nanoTime();

        synchronized long take(long nanos) {
            next = Math.max(next, System.nanoTime());
            long begin = next;
            next += nanos;
            return begin;
        }
    }

    /** Returns one value after its turn; generated code calls this. */
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
            throw new IllegalStateException("stopped while waiting for the next slot", stopped);
        }
        rowsLeft = rows;
    }
}
