package io.lakefeed.kinesis;

import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;

/** Describes a stream for Python when a feed starts. */
public final class StreamState {
    private StreamState() {}

    /** Returns the stream's id; a stream that is recreated gets a new id. */
    public static String id(Map<String, String> options) {
        return new DataStream(StreamConnection.of(options)).summary().id();
    }

    /**
     * Returns the stream's id, and for each shard the records of the shard that a feed has lost, as JSON: {@code {"id":
     * "…", "shards": {"0": null, "1": "what is lost"}}}. A shard that was read to its end counts as existing, even if
     * Kinesis no longer lists it.
     *
     * @param offset the feed's positions in the form of {@link StreamOffset}; null for a feed without positions
     */
    public static String of(Map<String, String> options, String offset) {
        DataStream stream = new DataStream(StreamConnection.of(options));
        DataStream.Summary summary = stream.summary();
        Retention retention = new Retention(summary.retentionMs());
        ObjectNode described = JsonNodeFactory.instance.objectNode().put("id", summary.id());
        ObjectNode shards = described.putObject("shards");
        List<DataStream.Shard> listed = stream.shards();
        listed.forEach(each -> shards.putNull(String.valueOf(each.number())));
        if (offset != null) {
            StreamOffset.of(offset).shards().forEach((number, at) -> {
                String name = String.valueOf(number);
                if (at.mark().finished()) {
                    shards.putNull(name);
                } else if (shards.has(name)) {
                    shards.put(name, lost(stream, number, at.mark(), retention));
                }
            });
        }
        return described.toString();
    }

    private static String lost(DataStream stream, int number, Mark mark, Retention retention) {
        if (!retention.hasReached(mark)) {
            return null;
        }
        ShardCursor cursor = new ShardCursor(stream, number, mark);
        ShardCursor.Page page;
        do {
            page = cursor.next(1);
        } while (page.records().isEmpty() && !page.atTip() && !page.finished() && !cursor.isMarkGone());
        return retention.lost(number, mark, cursor);
    }
}
