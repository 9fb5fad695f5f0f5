package io.lakefeed.upsert;

import java.util.List;
import java.util.Map;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.TypeUtil;
import org.apache.iceberg.types.Types;

/** Says which tables {@link KeyIndex} can serve. */
final class Indexable {
    private Indexable() {}

    /** Returns why not; null if it can. */
    static String refusal(Table table, List<String> keys) {
        Map<String, String> properties = table.properties();
        int version = ((HasTableOperations) table).operations().current().formatVersion();
        if (version != 2) {
            return version > 2
                    ? "a MERGE keeps the row ids of format version " + version
                    : "format version " + version + " has no delete files";
        }
        if (!"merge-on-read".equals(properties.get(TableProperties.MERGE_MODE))) {
            return "the table is written by copy-on-write";
        }
        String format = properties.getOrDefault(TableProperties.DEFAULT_FILE_FORMAT, "parquet");
        if (!format.equalsIgnoreCase("parquet")) {
            return "the table's files are " + format;
        }
        if (table.sortOrder().isSorted()) {
            return "the table's files are sorted";
        }
        for (Types.NestedField field : TypeUtil.indexById(table.schema().asStruct()).values()) {
            if (field.isRequired() && !isOfCollection(table, field)) {
                return "the column " + field.name() + " may not be null";
            }
        }
        for (PartitionField field : table.spec().fields()) {
            if (table.schema().asStruct().field(field.sourceId()) == null) {
                return "the partition " + field.name() + " is made from a nested column";
            }
        }
        for (String key : keys) {
            Type type = table.schema().findField(key).type();
            if (type.typeId() == Type.TypeID.UUID
                    || !KeyHash.takes(SparkSchemaUtil.convert(type))) {
                return "the key " + key + " is " + type;
            }
        }
        return null;
    }

    /** Keys of maps are always required; the elements of lists and maps follow the rows' types. */
    private static boolean isOfCollection(Table table, Types.NestedField field) {
        String name = table.schema().findColumnName(field.fieldId());
        return name != null && (name.endsWith(".key") || name.endsWith(".value") || name.endsWith(".element"));
    }
}
