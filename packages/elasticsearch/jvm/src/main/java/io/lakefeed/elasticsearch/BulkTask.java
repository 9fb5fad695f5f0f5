package io.lakefeed.elasticsearch;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;

/** Writes one task's documents in requests of limited size. A retry of the task writes the same documents again. */
final class BulkTask implements MapPartitionsFunction<Row, Long> {
    private static final long serialVersionUID = 1L;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Cluster cluster;
    private final BulkTarget target;

    BulkTask(Cluster cluster, BulkTarget target) {
        this.cluster = cluster;
        this.target = target;
    }

    @Override
    public Iterator<Long> call(Iterator<Row> documents) {
        BulkWriter writer = new BulkWriter(cluster, target, TaskContext.getPartitionId());
        List<Action> actions = new ArrayList<>();
        long bytes = 0;
        long count = 0;
        while (documents.hasNext()) {
            Row document = documents.next();
            Action action = action(document.getString(0), document.isNullAt(1) ? null : document.getString(1));
            boolean isFull = actions.size() == target.documents() || bytes + action.lines().length > target.bytes();
            if (isFull && !actions.isEmpty()) {
                writer.write(actions);
                actions = new ArrayList<>();
                bytes = 0;
            }
            actions.add(action);
            bytes += action.lines().length;
            count++;
        }
        if (!actions.isEmpty()) {
            writer.write(actions);
        }
        return List.of(count).iterator();
    }

    private Action action(String id, String json) {
        ObjectNode line = JSON.createObjectNode();
        line.putObject(json == null ? "delete" : "index")
                .put("_id", id)
                .put("version", target.version())
                // "external" would refuse a document that a failed attempt of this task has already written.
                .put("version_type", "external_gte");
        try {
            String lines = JSON.writeValueAsString(line) + "\n" + (json == null ? "" : json + "\n");
            return new Action(id, lines.getBytes(StandardCharsets.UTF_8));
        } catch (JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** One document of a request: its id, and its lines in the body. */
    record Action(String id, byte[] lines) {}
}
