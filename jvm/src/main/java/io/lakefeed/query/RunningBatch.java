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
 * The micro-batch that a streaming query is at work on, as the query itself has it: asked from inside its
 * {@code foreachBatch}.
 *
 * <p>Told for batches without new records too, whose plan no longer says where their sources stand.
 */
public final class RunningBatch {
    private static final ObjectMapper JSON = new ObjectMapper();

    private RunningBatch() {}

    /** One source's share of a batch, in Spark's own words; null where a source has not begun. */
    public record Span(String start, String end) {}

    /** Where each source of the query begins and ends in this batch, as JSON: {@code [{"start": "…", "end": "…"}]}. */
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
