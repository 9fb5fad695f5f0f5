package io.lakefeed.commit;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import org.apache.iceberg.MetadataColumns;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.UpdateSchema;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.TypeUtil;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Tries changes of a table's columns without a commit, to get Iceberg's own reason if Iceberg refuses the changes. */
public final class TrialSchema {
    private static final ObjectMapper JSON = new ObjectMapper();

    private TrialSchema() {}

    /**
     * Returns why Iceberg refuses to change the columns of a table; null if Iceberg accepts the changes.
     *
     * @param steps a JSON list of commits, which are lists of {@code ["rename", path, name]}, {@code ["optional",
     *     path]}, {@code ["widen", path, type]} or {@code ["add", path of the struct or null, name, type]}
     */
    public static String refusal(Table table, String steps) throws JsonProcessingException {
        JsonNode groups = JSON.readTree(steps);
        return refusal(() -> {
            Transaction trial = table.newTransaction();
            for (JsonNode group : groups) {
                UpdateSchema update = trial.updateSchema();
                for (JsonNode step : group) {
                    change(update, step);
                }
                update.commit();
            }
        });
    }

    /**
     * Returns why Iceberg refuses a new table; null if Iceberg accepts the table.
     *
     * @param columns the JSON of a StructType
     * @param partitions the partitions as pairs of a column and a transform, such as {@code at, day, id, bucket[16]}
     */
    public static String refusal(String columns, List<String> partitions) {
        return refusal(() -> {
            Schema schema = SparkSchemaUtil.convert((StructType) DataType.fromJson(columns));
            TypeUtil.indexByName(schema.asStruct());
            schema.columns().forEach(column -> refuseReserved(column.name()));
            PartitionSpec.Builder spec = PartitionSpec.builderFor(schema);
            for (int at = 0; at < partitions.size(); at += 2) {
                partition(spec, partitions.get(at), partitions.get(at + 1));
            }
            spec.build();
        });
    }

    private static String refusal(Runnable trial) {
        try {
            trial.run();
            return null;
        } catch (ValidationException | IllegalArgumentException | UnsupportedOperationException refused) {
            return refused.getMessage();
        }
    }

    private static void change(UpdateSchema update, JsonNode step) {
        String path = step.get(1).isNull() ? null : step.get(1).asText();
        switch (step.get(0).asText()) {
            case "rename" -> update.renameColumn(path, step.get(2).asText());
            case "optional" -> update.makeColumnOptional(path);
            case "widen" -> update.updateColumn(path, type(step.get(2)).asPrimitiveType());
            default -> {
                String name = step.get(2).asText();
                if (path == null) {
                    refuseReserved(name);
                }
                update.addColumn(path, name, type(step.get(3)));
            }
        }
    }

    private static Type type(JsonNode json) {
        return SparkSchemaUtil.convert(DataType.fromJson(json.asText()));
    }

    /** Refuses a column that Iceberg would accept, but with which Spark could not read the table. */
    private static void refuseReserved(String name) {
        ValidationException.check(
                !MetadataColumns.isMetadataColumn(name), "the name %s is reserved for a metadata column of Iceberg", name);
    }

    private static void partition(PartitionSpec.Builder spec, String column, String transform) {
        String[] parts = transform.split("[\\[\\]]");
        switch (parts[0]) {
            case "identity" -> spec.identity(column);
            case "year" -> spec.year(column);
            case "month" -> spec.month(column);
            case "day" -> spec.day(column);
            case "hour" -> spec.hour(column);
            case "bucket" -> spec.bucket(column, Integer.parseInt(parts[1]));
            default -> spec.truncate(column, Integer.parseInt(parts[1]));
        }
    }
}
