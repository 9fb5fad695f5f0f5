package io.lakefeed.query;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.SparkDataStream;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamProgress;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.sql.streaming.StreamingQuery;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Describes the current micro-batch of a streaming query; called inside the query's {@code foreachBatch}. */
public final class RunningBatch {
    private static final ObjectMapper JSON = new ObjectMapper();

    private RunningBatch() {}

    /** The offsets of one source in a batch, as the source writes them; null if the source has none yet. */
    public record Span(String start, String end) {}

    /**
     * Returns the offsets of each source in the current batch of a query, as JSON: {@code [{"start": "…", "end":
     * "…"}]}.
     *
     * <p>The offsets come from the batch's plan, or from the query if the batch has no new records.
     */
    public static String spans(SparkSession spark, String name) throws JsonProcessingException {
        StreamExecution execution = running(spark, name);
        List<Span> spans = new ArrayList<>();
        for (LogicalPlan leaf : CollectionConverters.asJava(execution.lastExecution().logical().collectLeaves())) {
            if (leaf instanceof StreamingDataSourceV2ScanRelation scan) {
                spans.add(new Span(json(scan.startOffset()), json(scan.endOffset())));
            }
        }
        if (spans.isEmpty()) {
            StreamProgress starts = execution.getStartOffsetsOfLatestBatch();
            StreamProgress ends = execution.availableOffsets();
            for (SparkDataStream source : CollectionConverters.asJava(execution.sources())) {
                spans.add(new Span(json(starts.get(source)), json(ends.get(source))));
            }
        }
        return JSON.writeValueAsString(spans);
    }

    private static StreamExecution running(SparkSession spark, String name) {
        for (StreamingQuery query : spark.streams().active()) {
            if (name.equals(query.name())) {
                return ((StreamingQueryWrapper) query).streamingQuery();
            }
        }
        throw new IllegalStateException("no query with the name " + name + " runs in this session");
    }

    private static String json(Option<Offset> offset) {
        return offset.isDefined() ? offset.get().json() : null;
    }
}
