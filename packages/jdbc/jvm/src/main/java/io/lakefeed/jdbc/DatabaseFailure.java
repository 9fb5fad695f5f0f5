package io.lakefeed.jdbc;

import java.sql.SQLException;

/** Reports the error of a database or its driver; Python reads the SQL state from the text. */
public final class DatabaseFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    DatabaseFailure(SQLException failed) {
        super("lakefeed database [" + failed.getSQLState() + " " + failed.getErrorCode() + "]: " + described(failed), failed);
    }

    /**
     * Returns the text of the last exception in the chain, because after a batch of statements the first exception does
     * not have the reason.
     */
    private static String described(SQLException failed) {
        SQLException last = failed;
        while (last.getNextException() != null && last.getNextException() != last) {
            last = last.getNextException();
        }
        return String.valueOf(last.getMessage()).replaceAll("\\s+", " ");
    }
}
