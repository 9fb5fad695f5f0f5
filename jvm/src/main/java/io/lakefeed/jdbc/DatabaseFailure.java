package io.lakefeed.jdbc;

import java.sql.SQLException;

/** What a database or its driver says; Python reads the state out of the text. */
public final class DatabaseFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    DatabaseFailure(SQLException failed) {
        super("lakefeed database [" + failed.getSQLState() + " " + failed.getErrorCode() + "]: " + told(failed), failed);
    }

    /** A batch's exception says less than the one behind it. */
    private static String told(SQLException failed) {
        SQLException last = failed;
        while (last.getNextException() != null && last.getNextException() != last) {
            last = last.getNextException();
        }
        return String.valueOf(last.getMessage()).replaceAll("\\s+", " ");
    }
}
