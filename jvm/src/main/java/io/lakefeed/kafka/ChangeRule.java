package io.lakefeed.kafka;

import java.io.Serializable;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Decides which records of an upsert delete their key's row, and which records lack a key; the rules are those of
 * {@code lakefeed.records.decode.changes} and {@code lakefeed.records.decode.verdict}.
 */
final class ChangeRule implements Serializable {
    private static final long serialVersionUID = 1L;

    /**
     * The rule as JSON; names of columns are compared without case.
     *
     * @param column the column that marks changes which delete their key's row
     * @param tombstones whether a record without a value deletes its key's row
     * @param equals for each column that can mark a delete, the texts, numbers or booleans that mark one
     * @param keys for each key column, the error of a record in which the column is null
     */
    record Options(String column, boolean tombstones, Map<String, List<Object>> equals, Map<String, String> keys)
            implements Serializable {}

    private record Mark(int column, DataType type, List<Object> values) implements Serializable {}

    private record Key(int column, String error) implements Serializable {}

    private final boolean tombstones;
    private final List<Mark> marks = new ArrayList<>();
    private final List<Key> keys = new ArrayList<>();

    /** Creates the rule for rows with these columns; a key column that they lack is not checked. */
    ChangeRule(Options options, StructType rows) {
        tombstones = options.tombstones();
        StructField[] fields = rows.fields();
        for (int at = 0; at < fields.length; at++) {
            int column = at;
            DataType type = fields[at].dataType();
            String name = fields[at].name().toLowerCase(Locale.ROOT);
            options.equals().forEach((marking, values) -> {
                if (marking.toLowerCase(Locale.ROOT).equals(name)) {
                    marks.add(new Mark(column, type, values.stream().map(ChangeRule::value).toList()));
                }
            });
        }
        options.keys().forEach((key, error) -> {
            for (int at = 0; at < fields.length; at++) {
                if (fields[at].name().equalsIgnoreCase(key)) {
                    keys.add(new Key(at, error));
                    return;
                }
            }
        });
    }

    private static Object value(Object given) {
        if (given instanceof Number number) {
            return new BigDecimal(number.toString());
        }
        return given instanceof String text ? UTF8String.fromString(text) : given;
    }

    String noKey(InternalRow row) {
        for (Key key : keys) {
            if (row.isNullAt(key.column())) {
                return key.error();
            }
        }
        return null;
    }

    /**
     * Returns whether a change deletes its key's row.
     *
     * @param isTombstone whether the record has no value
     */
    boolean deletes(InternalRow row, boolean isTombstone) {
        boolean deletes = tombstones && isTombstone;
        for (Mark mark : marks) {
            if (!row.isNullAt(mark.column())) {
                Object value = row.get(mark.column(), mark.type());
                deletes |= mark.values().stream().anyMatch(each -> isSame(value, each));
            }
        }
        return deletes;
    }

    private static boolean isSame(Object value, Object marking) {
        if (!(marking instanceof BigDecimal number)) {
            return value.equals(marking);
        }
        if (value instanceof Float || value instanceof Double) {
            return ((Number) value).doubleValue() == number.doubleValue();
        }
        BigDecimal exact = value instanceof Decimal decimal
                ? decimal.toJavaBigDecimal()
                : BigDecimal.valueOf(((Number) value).longValue());
        return exact.compareTo(number) == 0;
    }
}
