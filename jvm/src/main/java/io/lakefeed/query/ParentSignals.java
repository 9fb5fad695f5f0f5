package io.lakefeed.query;

import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.util.SignalUtils;

/**
 * Passes signals on to the Python process that spark-submit has started as a child of this JVM.
 *
 * <p>If the JVM did not pass SIGTERM on, SIGTERM would end the JVM in the middle of a batch.
 */
public final class ParentSignals {
    private static final AtomicBoolean REGISTERED = new AtomicBoolean();
    private static volatile long child;

    private ParentSignals() {}

    /**
     * Sets the process to which this JVM sends SIGTERM when it gets SIGTERM, SIGHUP or SIGINT.
     *
     * @param pid the id of the process; with 0, a signal ends this JVM as usual
     */
    public static void passOnTo(long pid) {
        child = pid;
        if (REGISTERED.compareAndSet(false, true)) {
            for (String name : new String[] {"TERM", "HUP", "INT"}) {
                SignalUtils.register(name, ParentSignals::passOn);
            }
        }
    }

    private static Object passOn() {
        long pid = child;
        return pid != 0 && ProcessHandle.of(pid).map(ProcessHandle::destroy).orElse(false);
    }
}
