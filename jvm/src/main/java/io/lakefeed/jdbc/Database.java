package io.lakefeed.jdbc;

import io.lakefeed.Secrets;
import java.io.Serializable;
import java.sql.Connection;
import java.sql.Driver;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;

/**
 * A database, and how to log in.
 *
 * <p>The password is copied out of {@link Secrets}, and travels to the executors inside serialised tasks only.
 */
public final class Database implements Serializable {
    private static final long serialVersionUID = 1L;

    private final String url;
    private final String driver;
    private final HashMap<String, String> properties;
    private final ArrayList<String> first;

    private Database(String url, String driver, Map<String, String> properties, List<String> first) {
        this.url = url;
        this.driver = driver;
        this.properties = new HashMap<>(properties);
        this.first = new ArrayList<>(first);
    }

    /**
     * Makes one.
     *
     * @param url of the database, without user and password
     * @param driver the driver's class
     * @param secret the password's name among {@link Secrets}
     * @param properties the user, and what else the driver is to know
     * @param first statements for each new connection
     */
    public static Database of(
            String url, String driver, String secret, Map<String, String> properties, List<String> first) {
        Database database = new Database(url, driver, properties, first);
        database.properties.put("password", Secrets.get(secret));
        return database;
    }

    Connection connect() {
        Properties login = new Properties();
        login.putAll(properties);
        try {
            // Not by DriverManager: it does not see drivers that Spark's class loader has loaded.
            Driver loaded = (Driver) Class.forName(driver, true, Thread.currentThread().getContextClassLoader())
                    .getDeclaredConstructor()
                    .newInstance();
            Connection connection = loaded.connect(url, login);
            try (Statement statement = connection.createStatement()) {
                for (String sql : first) {
                    statement.execute(sql);
                }
                connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
                connection.setAutoCommit(false);
            } catch (SQLException failed) {
                connection.close();
                throw failed;
            }
            return connection;
        } catch (SQLException failed) {
            throw new DatabaseFailure(failed);
        } catch (ReflectiveOperationException missing) {
            throw new IllegalStateException("the driver " + driver + " is not on the class path", missing);
        }
    }

    /** A connection of the driver's own. */
    public DatabaseSession session() {
        return new DatabaseSession(connect());
    }

    /**
     * Writes rows into a table, each task in a transaction of its own.
     *
     * @param rows their columns are the first parameters of the statement; points in time as {@code java.time} has them
     * @param insert has the id of the task's attempt as its last parameter
     * @param zoned whether the database keeps points in time as such; else they are given as UTC's wall clock
     * @return {@code attempt:rows} of each task whose rows count; a table can have those of failed attempts too
     */
    public List<String> stage(Dataset<Row> rows, String insert, boolean zoned) {
        return rows.mapPartitions(new StagedRows(this, insert, zoned), Encoders.STRING()).collectAsList();
    }
}
