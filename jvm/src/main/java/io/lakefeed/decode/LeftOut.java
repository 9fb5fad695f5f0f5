package io.lakefeed.decode;

import org.apache.spark.TaskContext;

/**
 * A field of the record that this thread decodes which no column has, for the counter of the record: JSON alone has
 * fields that are not in a schema.
 *
 * <p>It costs a record without such a field nothing, and one with them no object.
 */
public final class LeftOut {
    private static final ThreadLocal<LeftOut> OF_THREAD = ThreadLocal.withInitial(LeftOut::new);
    /** So many fields of a task are compared with the columns in any case; most names come again in each record. */
    private static final int MOST_COMPARED = 1_000;

    private long task = -1;
    private int compared;
    private String parent;
    private String name;
    private String column;

    /** Returns that of the calling thread; it is empty when a task begins. */
    public static LeftOut ofThread() {
        LeftOut found = OF_THREAD.get();
        TaskContext context = TaskContext.get();
        long task = context == null ? -1 : context.taskAttemptId();
        if (task == -1 || task != found.task) {
            found.task = task;
            found.compared = 0;
            found.clear();
        }
        return found;
    }

    /** Notes a field; the first of a record counts, or the first whose name differs from a column's in case only. */
    void note(String parent, String name, Iterable<String> columns) {
        if (this.name == null) {
            this.parent = parent;
            this.name = name;
        }
        if (column == null && compared < MOST_COMPARED) {
            compared++;
            for (String each : columns) {
                if (each.equalsIgnoreCase(name)) {
                    this.parent = parent;
                    this.name = name;
                    column = each;
                }
            }
        }
    }

    /** Returns whether the record has such a field. */
    public boolean isFound() {
        return name != null;
    }

    /** Describes the field by its path. */
    public String described() {
        String path = parent.isEmpty() ? name : parent + "." + name;
        return column == null ? path : path + " (the column is " + column + ")";
    }

    /** Forgets the record. */
    public void clear() {
        parent = null;
        name = null;
        column = null;
    }
}
