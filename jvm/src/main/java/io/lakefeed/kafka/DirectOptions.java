package io.lakefeed.kafka;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.lakefeed.decode.DecodeFunction;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The options of {@link DecodedRecords}.
 *
 * <ul>
 *   <li>{@code tasks}: the ranges of each task, as JSON {@code [[["topic", partition, from, until], …], …]};
 *   <li>{@code kafka.…}: the consumers' settings; {@code consumers}: a name; batches with the same name share
 *       consumers;
 *   <li>{@code decoder}: a JSON object with the options of a {@link io.lakefeed.decode.DecodeCatalog};
 *   <li>{@code commit-id}: the batch whose {@link io.lakefeed.commit.Outcomes} count the records;
 *   <li>{@code policy}: a {@link Policy} as JSON.
 * </ul>
 */
final class DirectOptions {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String KAFKA = "kafka.";
    private static final StructType METADATA = RecordRows.columns(true);

    private final CaseInsensitiveStringMap options;
    private final DecodeFunction decoder;
    private final Policy policy;
    private final ChangeRule changes;
    private final StructType columns;

    /**
     * Decides which records become rows, with the rules of {@code lakefeed.records.decode.verdict}.
     *
     * @param onError the verdict on a record that cannot be read
     * @param onNull the verdict on a record without a value
     * @param nullReason the error of a record without a value; null if it becomes a row or is skipped
     * @param refused the error of records by schema id, for schemas whose records must not become rows
     * @param unknownSchema the beginning of the error for an unknown schema id
     * @param badTimestamp the error for a timestamp that overflows Spark's type, as a format; null if rows have no
     * timestamp column
     * @param keep the metadata columns of rows, by their names in {@link RecordRows}
     * @param prefix the prefix of the metadata columns' names in the result
     * @param changes the rule for records that delete rows; null if rows are only added
     */
    record Policy(
            int onError,
            int onNull,
            String nullReason,
            Map<Integer, String> refused,
            String unknownSchema,
            String badTimestamp,
            List<String> keep,
            String prefix,
            ChangeRule.Options changes)
            implements Serializable {}

    /**
     * The options that tasks need.
     *
     * @param changes the rule for the rows' last column, which marks deletes; null if rows are only added
     * @param fields the number of fields of a decoded value
     */
    record OfTasks(Map<String, Object> consumer, String consumers, Policy policy, ChangeRule changes, int fields)
            implements Serializable {}

    DirectOptions(CaseInsensitiveStringMap options) {
        this.options = options;
        this.decoder = new DecodeFunction(
                "records", new CaseInsensitiveStringMap(parsed("decoder", new TypeReference<Map<String, String>>() {})));
        this.policy = parsed("policy", new TypeReference<Policy>() {});
        StructType fields = new StructType();
        for (StructField field : decoder.columns().fields()) {
            // All fields are nullable, because a record without a value may become a row of nulls.
            fields = fields.add(field.name(), field.dataType(), true);
        }
        for (String name : policy.keep()) {
            fields = fields.add(policy.prefix() + name, METADATA.apply(name).dataType(), true);
        }
        changes = policy.changes() == null ? null : new ChangeRule(policy.changes(), fields);
        if (changes != null) {
            fields = fields.add(policy.changes().column(), DataTypes.BooleanType, false);
        }
        this.columns = fields;
    }

    private <T> T parsed(String option, TypeReference<T> type) {
        try {
            return JSON.readValue(options.getOrDefault(option, "{}"), type);
        } catch (JsonProcessingException invalid) {
            throw new IllegalArgumentException("the option " + option + " has JSON of another form: see the cause", invalid);
        }
    }

    StructType columns() {
        return columns;
    }

    String commitId() {
        return options.get("commit-id");
    }

    DecodeFunction decoder() {
        return decoder;
    }

    InputPartition[] tasks() {
        List<DirectTask> tasks = new ArrayList<>();
        for (JsonNode task : parsed("tasks", new TypeReference<JsonNode>() {})) {
            List<DirectTask.Range> ranges = new ArrayList<>();
            task.forEach(each -> ranges.add(new DirectTask.Range(
                    each.get(0).asText(), each.get(1).asInt(), each.get(2).asLong(), each.get(3).asLong())));
            tasks.add(new DirectTask(ranges));
        }
        return tasks.toArray(InputPartition[]::new);
    }

    OfTasks ofTasks() {
        Map<String, Object> consumer = new HashMap<>();
        options.asCaseSensitiveMap().forEach((name, value) -> {
            if (name.startsWith(KAFKA)) {
                consumer.put(name.substring(KAFKA.length()), value);
            }
        });
        consumer.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
        consumer.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
        // A missing offset must be an error, and not a jump to another offset. No group gets committed offsets, because
        // the ledger has the feed's offsets.
        consumer.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        consumer.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        return new OfTasks(consumer, options.get("consumers"), policy, changes, decoder.columns().size());
    }

    record DirectTask(List<Range> ranges) implements InputPartition {
        /** The offsets of one partition, beginning with {@code from} and ending before {@code until}. */
        record Range(String topic, int partition, long from, long until) implements java.io.Serializable {}
    }
}
