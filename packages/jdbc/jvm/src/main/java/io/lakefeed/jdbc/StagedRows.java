package io.lakefeed.jdbc;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Types;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;

/**
 * Writes one task's rows into the staging table, in one transaction.
 *
 * <p>Each row has the id of the task's attempt: if the answer to a commit is lost, the task runs again, and the staging
 * table has its rows twice. The driver knows which attempt counts.
 */
final class StagedRows implements MapPartitionsFunction<Row, String> {
    private static final long serialVersionUID = 1L;
    private static final int ROWS_AT_ONCE = 1000;

    private final Database database;
    private final String insert;
    private final boolean zoned;

    StagedRows(Database database, String insert, boolean zoned) {
        this.database = database;
        this.insert = insert;
        this.zoned = zoned;
    }

    @Override
    public Iterator<String> call(Iterator<Row> rows) {
        long attempt = TaskContext.get().taskAttemptId();
        // A task without rows opens no connection; many tasks of a small batch have no rows.
        if (!rows.hasNext()) {
            return List.<String>of().iterator();
        }
        long count = 0;
        try (Connection connection = database.connect();
                PreparedStatement statement = connection.prepareStatement(insert)) {
            while (rows.hasNext()) {
                bind(statement, rows.next(), attempt);
                statement.addBatch();
                if (++count % ROWS_AT_ONCE == 0) {
                    statement.executeBatch();
                }
            }
            statement.executeBatch();
            connection.commit();
        } catch (SQLException failed) {
            throw new DatabaseFailure(failed);
        }
        return List.of(attempt + ":" + count).iterator();
    }

    private void bind(PreparedStatement statement, Row row, long attempt) throws SQLException {
        for (int index = 0; index < row.size(); index++) {
            Object value = bindable(row.get(index));
            if (value == null) {
                statement.setNull(index + 1, Types.NULL);
            } else {
                statement.setObject(index + 1, value);
            }
        }
        statement.setLong(row.size() + 1, attempt);
    }

    private Object bindable(Object value) {
        if (!(value instanceof Instant instant)) {
            return value;
        }
        return zoned ? instant.atOffset(ZoneOffset.UTC) : LocalDateTime.ofInstant(instant, ZoneOffset.UTC);
    }
}
