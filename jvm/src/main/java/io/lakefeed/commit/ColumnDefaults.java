package io.lakefeed.commit;

import java.util.Arrays;
import java.util.List;
import org.apache.iceberg.Table;
import org.apache.iceberg.UpdateSchema;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.Literal;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.types.Type;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** Adds columns whose default rows from before have too: {@code ALTER TABLE … ADD COLUMNS (c STRING DEFAULT 'x')}. */
final class ColumnDefaults {
    private ColumnDefaults() {}

    /** Returns whether a change adds a column with a default. */
    static boolean has(TableChange change) {
        return change instanceof TableChange.AddColumn add && add.defaultValue() != null;
    }

    /**
     * Adds columns in one commit.
     *
     * @param changes of one statement
     * @throws UnsupportedOperationException if one of them is more than a new optional column at the end
     */
    static void add(Table table, List<TableChange> changes) {
        UpdateSchema update = table.updateSchema();
        for (TableChange change : changes) {
            if (!(change instanceof TableChange.AddColumn add) || !add.isNullable() || add.position() != null) {
                throw new UnsupportedOperationException("beside a column with a default there are only optional columns");
            }
            String[] names = add.fieldNames();
            String parent = names.length == 1 ? null : String.join(".", Arrays.copyOf(names, names.length - 1));
            Type type = SparkSchemaUtil.convert(add.dataType());
            Literal<?> value = add.defaultValue() == null ? null : literal(add.defaultValue().getValue().value());
            update.addColumn(parent, names[names.length - 1], type, add.comment(), value);
        }
        update.commit();
    }

    private static Literal<?> literal(Object value) {
        if (value instanceof UTF8String text) {
            return Expressions.lit(text.toString());
        }
        return Expressions.lit(value instanceof Decimal decimal ? decimal.toJavaBigDecimal() : value);
    }
}
