package io.lakefeed.query;

import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.util.SignalUtils;

/**
 * Passes signals to the Python process if spark-submit has started it as a child of this JVM.
 *
 * <p>Otherwise SIGTERM would end the JVM in the middle of a batch.
 */
public final class ParentSignals {
    private static final AtomicBoolean REGISTERED = new AtomicBoolean();
    private static volatile long child;

    private ParentSignals() {}

    /**
     * Sets the process that gets SIGTERM when this JVM gets SIGTERM, SIGHUP or SIGINT.
     *
     * @param pid its id; 0 for none, then this JVM ends as usual
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
