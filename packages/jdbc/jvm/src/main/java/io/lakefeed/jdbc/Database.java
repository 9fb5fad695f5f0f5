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
 * A database and its login.
 *
 * <p>The password is copied from {@link Secrets}, and reaches the executors only inside serialised tasks.
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
     * Creates a database.
     *
     * @param url the URL of the database, without user and password
     * @param driver the driver's class
     * @param secret the name of the password in {@link Secrets}
     * @param properties the user, and other properties of the driver
     * @param first the statements to run first in each new connection
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
            // Load the driver by its name, because DriverManager does not find drivers in Spark's class loader.
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
            throw new IllegalStateException("the JDBC driver " + driver + " is not on the class path: add its jar", missing);
        }
    }

    /** Opens a connection for statements that the Spark driver itself runs. */
    public DatabaseSession session() {
        return new DatabaseSession(connect());
    }

    /**
     * Writes rows into a table, each task in its own transaction.
     *
     * @param rows the rows, whose columns are the first parameters of {@code insert}; timestamps are {@code java.time}
     *     values
     * @param insert a statement whose last parameter is the id of the task's attempt
     * @param zoned whether timestamps are stored with a zone; otherwise they are written in UTC, without a zone
     * @return {@code attempt:rows} of the successful attempts; the table can also have rows of failed attempts
     */
    public List<String> stage(Dataset<Row> rows, String insert, boolean zoned) {
        return rows.mapPartitions(new StagedRows(this, insert, zoned), Encoders.STRING()).collectAsList();
    }
}
