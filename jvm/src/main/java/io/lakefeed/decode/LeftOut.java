package io.lakefeed.decode;

import java.util.Set;
import org.apache.spark.TaskContext;

/**
 * Remembers a field without a column in the record that this thread decodes. {@code io.lakefeed.commit.OutcomeFunction}
 * counts the records with such a field. Only JSON has fields that are not in a schema.
 *
 * <p>Remembering a field creates no object.
 */
public final class LeftOut {
    private static final ThreadLocal<LeftOut> OF_THREAD = ThreadLocal.withInitial(LeftOut::new);
    /** The most names of fields that a task compares with the columns; the names repeat in each record. */
    private static final int MOST_COMPARED = 1_000;

    /**
     * How fields without a column are treated.
     *
     * @param isError whether such a field makes its record unreadable
     * @param refused the paths of fields that cannot become columns; null if no field becomes a column
     * @param isKept whether the last column stores the outermost fields that have no column, or contain a field without
     * one
     */
    record Rule(boolean isError, Set<String> refused, boolean isKept) {
        static final Rule IGNORE = new Rule(false, null, false);
    }

    private long task = -1;
    private int compared;
    private String parent;
    private String name;
    private String column;
    private String newColumn;

    /** Returns the object of the calling thread; it is empty when a task begins. */
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

    /** Remembers a record's first field without a column, or rather one that differs from a column only in case. */
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

    /** Remembers the first field of a record that can become a column. */
    void noteColumn(String parent, String name, Rule rule) {
        if (newColumn == null && !name.isEmpty()) {
            String path = path(parent, name);
            newColumn = rule.refused().contains(path) ? null : path;
        }
    }

    /** Returns the path of a field that can become a column, or null. */
    public String newColumn() {
        return newColumn;
    }

    private static String path(String parent, String name) {
        return parent.isEmpty() ? name : parent + "." + name;
    }

    /** Returns the error of a record with a field without a column. */
    static String refusal(String name, Iterable<String> columns) {
        for (String each : columns) {
            if (each.equalsIgnoreCase(name)) {
                return "no column has this field: the column is " + each;
            }
        }
        return name.isEmpty() ? "no column can have a field with the empty name" : "no column has this field";
    }

    public boolean isFound() {
        return name != null;
    }

    /** Returns the field's path; and the column whose name differs only in case, if there is one. */
    public String described() {
        String path = path(parent, name);
        return column == null ? path : path + " (the column is " + column + ")";
    }

    public void clear() {
        parent = null;
        name = null;
        column = null;
        newColumn = null;
    }
}
