package io.lakefeed.decode;

import io.lakefeed.protobuf.Malformed;
import java.util.concurrent.atomic.AtomicInteger;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One record cannot be read; its message becomes the record's error: {@code items[3].price: why}. Costs no stack trace.
 *
 * <p>Who reads a value knows what is wrong with it, and who reads the values around it knows where it is. So a format
 * throws this with a reason alone, and each level that it passes adds its own name with {@link #at} or {@link #item}:
 *
 * <pre>{@code
 * try {
 *     value = step.read(in);
 * } catch (RuntimeException bad) {
 *     throw BadRecord.of(bad).at(field.name());
 * }
 * }</pre>
 *
 * <p>A block of {@code try} costs nothing while nothing is thrown; put it around the loop over the fields, not into it.
 * Reasons have neither values of the record nor a text of Java's.
 */
public final class BadRecord extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private static final Logger LOG = LoggerFactory.getLogger(BadRecord.class);
    /** Of a longer path, the names at both ends are shown. */
    private static final int SHOWN_AT_EACH_END = 8;
    /** The reason for a failure that no part of the decoder expects. */
    private static final String DEFECT = "the decoder fails on this value, which is a defect of lakefeed: please report it";

    private static final int LONGEST_NAME = 100;
    private static final int MOST_DEFECTS_LOGGED = 20;
    private static final AtomicInteger DEFECTS_LOGGED = new AtomicInteger();

    /** Names of fields and numbers of items; those between both ends are not kept. */
    private final transient Object[] innermost = new Object[SHOWN_AT_EACH_END];

    private final transient Object[] outermost = new Object[SHOWN_AT_EACH_END];
    private int depth;

    /** Creates the error of a record; the reason has no value of the record in it. */
    public BadRecord(String message) {
        super(message, null, false, false);
    }

    /**
     * Converts an exception that a reader caught. A {@link BadRecord} stays as it is. A {@link RegistryException} is
     * thrown again, because the record is not at fault. Anything else is a defect of the decoder: it is logged without
     * its message, which may contain values.
     */
    static BadRecord of(RuntimeException caught) {
        if (caught instanceof BadRecord bad) {
            return bad;
        }
        if (caught instanceof RegistryException outage) {
            throw outage;
        }
        if (caught instanceof Malformed malformed) {
            return new BadRecord(malformed.getMessage());
        }
        if (DEFECTS_LOGGED.getAndIncrement() < MOST_DEFECTS_LOGGED) {
            StackTraceElement[] frames = caught.getStackTrace();
            LOG.warn("{}: {} {}", DEFECT, caught.getClass().getName(), frames.length == 0 ? "" : "at " + frames[0]);
        }
        return new BadRecord(DEFECT);
    }

    /** Adds the name of the field that the value is in. */
    public BadRecord at(String name) {
        return inside(name);
    }

    /** Adds the index of the array item, or of the map entry, that the value is in. */
    public BadRecord item(long index) {
        return inside(index);
    }

    private BadRecord inside(Object step) {
        if (depth < SHOWN_AT_EACH_END) {
            innermost[depth] = step;
        } else {
            outermost[depth % SHOWN_AT_EACH_END] = step;
        }
        depth++;
        return this;
    }

    @Override
    public String getMessage() {
        return depth == 0 ? super.getMessage() : path() + ": " + super.getMessage();
    }

    private String path() {
        StringBuilder path = new StringBuilder();
        for (int at = depth - 1; at >= Math.max(SHOWN_AT_EACH_END, depth - SHOWN_AT_EACH_END); at--) {
            append(path, outermost[at % SHOWN_AT_EACH_END]);
        }
        if (depth > 2 * SHOWN_AT_EACH_END) {
            path.append("…");
        }
        for (int at = Math.min(depth, SHOWN_AT_EACH_END) - 1; at >= 0; at--) {
            append(path, innermost[at]);
        }
        return path.toString();
    }

    private static void append(StringBuilder path, Object step) {
        if (step instanceof String name) {
            path.append(path.isEmpty() ? "" : ".");
            path.append(name.length() > LONGEST_NAME ? name.substring(0, LONGEST_NAME) + "…" : name);
        } else {
            path.append('[').append(step).append(']');
        }
    }
}
