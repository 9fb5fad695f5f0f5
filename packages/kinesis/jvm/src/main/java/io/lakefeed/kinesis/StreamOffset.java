package io.lakefeed.kinesis;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** The positions in the shards of a stream, as JSON {@code {"stream":{"0":{"at":12,"mark":"49…"}}}}. */
final class StreamOffset extends Offset {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String stream;
    private final SortedMap<Integer, At> shards;

    /**
     * The position in one shard.
     *
     * @param at the number of records that were read, which is the number of the next record
     * @param mark the mark after which reading continues
     */
    record At(long at, Mark mark) {
        static final At BEGINNING = new At(0, Mark.OLDEST);
    }

    StreamOffset(String stream, SortedMap<Integer, At> shards) {
        this.stream = stream;
        this.shards = new TreeMap<>(shards);
    }

    static StreamOffset of(String json) {
        try {
            var document = JSON.readTree(json).properties().iterator().next();
            SortedMap<Integer, At> shards = new TreeMap<>();
            document.getValue().properties().forEach(each -> shards.put(Integer.valueOf(each.getKey()), at(each.getValue())));
            return new StreamOffset(document.getKey(), shards);
        } catch (JsonProcessingException unreadable) {
            throw new IllegalArgumentException("these are not the positions of a stream: " + json, unreadable);
        }
    }

    private static At at(JsonNode json) {
        return new At(json.path("at").asLong(), Mark.of(json.path("mark").asText()));
    }

    SortedMap<Integer, At> shards() {
        return new TreeMap<>(shards);
    }

    At at(int shard) {
        return shards.getOrDefault(shard, At.BEGINNING);
    }

    @Override
    public String json() {
        ObjectNode document = JSON.createObjectNode();
        ObjectNode each = document.putObject(stream);
        shards.forEach((shard, at) -> each.putObject(shard.toString())
                .put("at", at.at())
                .put("mark", at.mark().toString()));
        return document.toString();
    }
}
