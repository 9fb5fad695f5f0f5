package io.lakefeed.decode;

import io.lakefeed.protobuf.Malformed;
import java.util.concurrent.atomic.AtomicInteger;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reports that one record cannot be read. Its message becomes the record's error: {@code items[3].price: why}. The
 * exception has no stack trace, which would take time.
 *
 * <p>The reader of a value knows the reason, and the readers around it know the path to the value. So a format throws a
 * BadRecord with the reason alone, and each level around the value adds its name with {@link #at} or {@link #item}:
 *
 * <pre>{@code
 * try {
 *     value = step.read(in);
 * } catch (RuntimeException bad) {
 *     throw BadRecord.of(bad).at(field.name());
 * }
 * }</pre>
 *
 * <p>Put the {@code try} around the loop over the fields, not inside it. A reason must contain neither values of the
 * record nor messages of Java's exceptions.
 */
public final class BadRecord extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private static final Logger LOG = LoggerFactory.getLogger(BadRecord.class);
    /** The number of names that a long path shows at each of its ends. */
    private static final int SHOWN_AT_EACH_END = 8;
    /** The reason that a record's error gives for a failure that the decoder does not expect. */
    private static final String DEFECT = "the decoder fails on this value, which is a defect of lakefeed: please report it";

    private static final int LONGEST_NAME = 100;
    private static final int MOST_DEFECTS_LOGGED = 20;
    private static final AtomicInteger DEFECTS_LOGGED = new AtomicInteger();

    /** The inner end of the path: names of fields and indexes of items. The outer end follows. */
    private final transient Object[] innermost = new Object[SHOWN_AT_EACH_END];

    private final transient Object[] outermost = new Object[SHOWN_AT_EACH_END];
    private int depth;

    /** Creates the error of a record; the reason must not contain values of the record. */
    public BadRecord(String message) {
        super(message, null, false, false);
    }

    /**
     * Returns the bad record for an exception that a reader has caught. A {@link BadRecord} is returned unchanged. A
     * {@link RegistryException} is thrown again, because the record did not cause it. Other exceptions are defects of
     * the decoder. They are logged without their messages, which can contain values.
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

    /** Adds the name of the field that contains the value. */
    public BadRecord at(String name) {
        return inside(name);
    }

    /** Adds the index of the array item, or of the map entry, that contains the value. */
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
