package io.lakefeed.query;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.SparkDataStream;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamProgress;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.sql.streaming.StreamingQuery;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Describes the current micro-batch of a streaming query, from inside its {@code foreachBatch}.
 *
 * <p>It works for batches without new records too, whose plan does not contain the positions of their sources.
 */
public final class RunningBatch {
    private static final ObjectMapper JSON = new ObjectMapper();

    private RunningBatch() {}

    /** One source's offsets in a batch, in Spark's form; null where a source has none yet. */
    public record Span(String start, String end) {}

    /**
     * Returns where each source of the query begins and ends in this batch, as JSON: {@code [{"start": "…", "end":
     * "…"}]}.
     */
    public static String spans(StreamingQuery query) throws JsonProcessingException {
        StreamExecution execution = ((StreamingQueryWrapper) query).streamingQuery();
        StreamProgress starts = execution.getStartOffsetsOfLatestBatch();
        StreamProgress ends = execution.availableOffsets();
        List<Span> spans = new ArrayList<>();
        for (SparkDataStream source : CollectionConverters.asJava(execution.sources())) {
            spans.add(new Span(json(starts, source), json(ends, source)));
        }
        return JSON.writeValueAsString(spans);
    }

    private static String json(StreamProgress progress, SparkDataStream source) {
        Option<Offset> offset = progress.get(source);
        return offset.isDefined() ? offset.get().json() : null;
    }
}
