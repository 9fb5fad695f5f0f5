package io.lakefeed.jdbc;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;

/**
 * A connection to a database, for statements of few rows, such as the ledger's. All statements before {@link #commit}
 * are one transaction.
 */
public final class DatabaseSession implements AutoCloseable {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Connection connection;

    DatabaseSession(Connection connection) {
        this.connection = connection;
    }

    /** Runs a query and returns its rows as JSON; values other than numbers, booleans and nulls are text. */
    public String query(String sql, List<Object> parameters) {
        List<List<Object>> rows = new ArrayList<>();
        try (PreparedStatement statement = prepared(sql, parameters);
                ResultSet found = statement.executeQuery()) {
            int columns = found.getMetaData().getColumnCount();
            while (found.next()) {
                List<Object> row = new ArrayList<>(columns);
                for (int column = 1; column <= columns; column++) {
                    Object value = found.getObject(column);
                    row.add(value == null || value instanceof Number || value instanceof Boolean
                            ? value
                            : found.getString(column));
                }
                rows.add(row);
            }
            return JSON.writeValueAsString(rows);
        } catch (SQLException failed) {
            throw new DatabaseFailure(failed);
        } catch (JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** Runs a statement; returns the number of rows that it affects. */
    public long update(String sql, List<Object> parameters) {
        try (PreparedStatement statement = prepared(sql, parameters)) {
            return statement.executeLargeUpdate();
        } catch (SQLException failed) {
            throw new DatabaseFailure(failed);
        }
    }

    private PreparedStatement prepared(String sql, List<Object> parameters) throws SQLException {
        PreparedStatement statement = connection.prepareStatement(sql);
        for (int index = 0; index < parameters.size(); index++) {
            statement.setObject(index + 1, parameters.get(index));
        }
        return statement;
    }

    public void commit() {
        try {
            connection.commit();
        } catch (SQLException failed) {
            throw new DatabaseFailure(failed);
        }
    }

    /** Rolls the open transaction back and closes the connection. */
    @Override
    public void close() {
        try {
            if (!connection.isClosed()) {
                connection.rollback();
            }
        } catch (SQLException broken) {
            // If the connection is lost, the server rolls back by itself.
        }
        try {
            connection.close();
        } catch (SQLException broken) {
            // If the connection is lost, nothing is left to close.
        }
    }
}
