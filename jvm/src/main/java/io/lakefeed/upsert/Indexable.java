package io.lakefeed.upsert;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotSummary;
import org.apache.iceberg.SortField;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.TypeUtil;
import org.apache.iceberg.types.Types.NestedField;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Decides which tables can have a {@link KeyIndex}. */
final class Indexable {
    private Indexable() {}

    /** Returns why the table cannot have an index; null if it can. */
    static String refusal(Table table, List<String> keys, List<String> orderBy) {
        Map<String, String> properties = table.properties();
        if (formatVersion(table) < 2) {
            return "format version 1 has no delete files";
        }
        String format = properties.getOrDefault(TableProperties.DEFAULT_FILE_FORMAT, "parquet");
        if (!format.equalsIgnoreCase("parquet")) {
            return "the table's files are " + format;
        }
        for (PartitionField field : table.spec().fields()) {
            if (table.schema().asStruct().field(field.sourceId()) == null) {
                return "the partition " + field.name() + " is made from a nested column";
            }
        }
        for (SortField field : table.sortOrder().fields()) {
            NestedField column = table.schema().asStruct().field(field.sourceId());
            if (column == null || column.type().typeId() == Type.TypeID.UUID) {
                return "the files are sorted by " + table.schema().findColumnName(field.sourceId());
            }
        }
        for (String key : keys) {
            if (table.schema().findType(key).typeId() == Type.TypeID.UUID) {
                return "the key " + key + " is uuid";
            }
        }
        return refusal(SparkSchemaUtil.convert(table.schema()), keys, orderBy);
    }

    /** Returns why a table with these columns cannot have an index; null if it can. */
    static String refusal(StructType columns, List<String> keys, List<String> orderBy) {
        for (String key : keys) {
            DataType type = columns.apply(key).dataType();
            if (!KeyHash.takes(type)) {
                return "the key " + key + " is " + type.catalogString();
            }
        }
        for (String column : orderBy) {
            DataType type = columns.apply(column).dataType();
            if (!KeyOrder.takes(type)) {
                return "order_by names " + column + ", which is " + type.catalogString();
            }
        }
        return null;
    }

    static boolean isCopyOnWrite(Table table) {
        return !"merge-on-read".equals(table.properties().get(TableProperties.MERGE_MODE));
    }

    static int formatVersion(Table table) {
        return ((HasTableOperations) table).operations().current().formatVersion();
    }

    /**
     * Checks that the columns of a batch's rows fit the table, as Iceberg checks the columns of a write.
     *
     * @throws NotIndexed if a column's type differs from the table's, or it may be null and the table's column may not
     */
    static void requireColumns(Table table, StructType rows, List<String> keys) {
        // Key columns count as not null: a change with a null key is refused before it is written.
        StructType columns = new StructType(Arrays.stream(rows.fields())
                .limit(table.schema().columns().size())
                .map(each -> each.copy(
                        each.name(), each.dataType(), each.nullable() && !keys.contains(each.name()), each.metadata()))
                .toArray(StructField[]::new));
        try {
            TypeUtil.validateWriteSchema(table.schema(), SparkSchemaUtil.convert(table.schema(), columns), true, true);
        } catch (IllegalArgumentException refused) {
            String[] lines = refused.getMessage().split("\\R");
            throw new NotIndexed("the rows have other columns: " + lines[lines.length - 1].replaceFirst("^\\W+", ""));
        }
    }

    /** Returns the number of rows by a snapshot's summary; too small if the summary has counted a deleted row twice. */
    static long rows(Snapshot of) {
        Map<String, String> summary = of == null ? Map.of() : of.summary();
        return Long.parseLong(summary.getOrDefault(SnapshotSummary.TOTAL_RECORDS_PROP, "0"))
                - Long.parseLong(summary.getOrDefault(SnapshotSummary.TOTAL_POS_DELETES_PROP, "0"));
    }
}
