package io.lakefeed.produce;

import java.io.Serializable;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * {@code pace(bytes)}: the bytes themselves, no faster than a rate for all tasks of this JVM together.
 *
 * <p>Time is given out in slots of up to {@value #SLOT_MILLIS} ms, so that at a million rows a second no lock is
 * taken for each row. What was not used in time is lost: after a pause there is no burst. With several
 * executors each has the whole rate. A killed task stops waiting.
 */
public final class Pace implements ScalarFunction<byte[]>, Serializable {
    private static final long serialVersionUID = 1L;
    private static final int SLOT_MILLIS = 10;
    private static final long LONGEST_SLEEP_MILLIS = 100;
    private static final Map<String, Clock> CLOCKS = new ConcurrentHashMap<>();

    private final String name;
    private final double rowsPerSecond;
    private transient Clock clock;
    private transient long rowsLeft;

    Pace(String name, double rowsPerSecond) {
        this.name = name;
        this.rowsPerSecond = rowsPerSecond;
    }

    /** When the next slot begins, shared by all tasks of the JVM. */
    private static final class Clock {
        private long next = System.nanoTime();

        synchronized long take(long nanos) {
            next = Math.max(next, System.nanoTime());
            long begin = next;
            next += nanos;
            return begin;
        }
    }

    /** Called by generated code, once for each row. */
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

    @Override
    public DataType[] inputTypes() {
        return new DataType[] {DataTypes.BinaryType};
    }

    @Override
    public DataType resultType() {
        return DataTypes.BinaryType;
    }

    @Override
    public boolean isDeterministic() {
        return false;
    }

    @Override
    public String name() {
        return "pace";
    }

    @Override
    public String canonicalName() {
        return "io.lakefeed.produce." + name;
    }

    @Override
    public String toString() {
        return name + ".pace(" + rowsPerSecond + " rows/s)";
    }
}
