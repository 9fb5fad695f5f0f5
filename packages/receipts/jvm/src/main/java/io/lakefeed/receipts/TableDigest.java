package io.lakefeed.receipts;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.Serializable;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.util.SnapshotUtil;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.unsafe.types.UTF8String;

/** Computes the digests of a table's rows, as {@link RowDigest} did when they were written. */
public final class TableDigest {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TreeMap<Long, Span> NO_SPANS = new TreeMap<>();
    /** The group of rows of no span, if a span names their topic; and that of all other rows. */
    private static final int OTHERS = -1;

    private static final int FOREIGN = -3;

    private TableDigest() {}

    /** The offsets of one partition that belong to one group of commits. */
    private record Span(long start, long end, int group) implements Serializable {
        boolean has(long offset) {
            return start <= offset && offset < end;
        }
    }

    /**
     * Returns the sums of each group's rows as JSON, {@code {"group":{…}}}.
     *
     * @param rows rows with the columns of the snapshot
     * @param snapshot the snapshot's id; null for the table's current schema
     * @param spans {@code [["topic/partition", start, end, group], …]}, which must not overlap; {@code ["topic", …]}
     *     names a topic whose other rows are compared, too
     */
    public static String of(
            SparkContext spark, Dataset<?> rows, Table table, Long snapshot, String secret, String spans)
            throws JsonProcessingException {
        HashMap<String, TreeMap<Long, Span>> known = new HashMap<>();
        for (JsonNode each : JSON.readTree(spans)) {
            known.computeIfAbsent(each.get(0).asText(), any -> new TreeMap<>())
                    .put(each.get(1).asLong(), new Span(each.get(1).asLong(), each.get(2).asLong(), each.get(3).asInt()));
        }
        Schema stored = snapshot == null ? table.schema() : SnapshotUtil.schemaFor(table, snapshot);
        String schema = SchemaParser.toJson(SparkSchemaUtil.convert(stored, rows.schema()));
        Receipts.Settings settings = Receipts.Settings.of(spark, secret, new HashMap<>());
        Map<Integer, Map<String, long[]>> sums = new TreeMap<>();
        rows.queryExecution()
                .toRdd()
                .toJavaRDD()
                .mapPartitions(part -> List.of(sums(part, SchemaParser.fromJson(schema), settings, known)).iterator())
                .collect()
                .forEach(part -> part.forEach((group, of) ->
                        Receipts.add(sums.computeIfAbsent(group, any -> new TreeMap<>()), of)));
        ObjectNode json = JSON.createObjectNode();
        sums.forEach((group, of) -> json.set(String.valueOf(group), Receipts.json(of)));
        return JSON.writeValueAsString(json);
    }

    /** Returns the span with an offset, or the gap between two spans, which belongs to the group {@code rest}. */
    private static Span span(TreeMap<Long, Span> spans, long offset, int rest) {
        Map.Entry<Long, Span> before = spans.floorEntry(offset);
        if (before != null && before.getValue().has(offset)) {
            return before.getValue();
        }
        Long after = spans.higherKey(offset);
        return new Span(before == null ? -1 : before.getValue().end(), after == null ? Long.MAX_VALUE : after, rest);
    }

    private static HashMap<Integer, Map<String, long[]>> sums(
            Iterator<InternalRow> rows, Schema schema, Receipts.Settings settings, Map<String, TreeMap<Long, Span>> known) {
        RowDigest places = settings.digest(schema);
        Map<Integer, RowDigest> digests = new HashMap<>();
        UTF8String topic = null;
        int partition = 0;
        Span span = null;
        RowDigest digest = null;
        while (rows.hasNext()) {
            InternalRow row = rows.next();
            UTF8String ofRow = places.topic(row);
            int number = places.partition(row);
            long offset = places.offset(row);
            if (span == null || !span.has(offset) || number != partition || !ofRow.equals(topic)) {
                topic = ofRow.clone();
                partition = number;
                int rest = known.containsKey(topic.toString()) ? OTHERS : FOREIGN;
                span = span(known.getOrDefault(topic + "/" + number, NO_SPANS), offset, rest);
                digest = digests.computeIfAbsent(span.group(), any -> settings.digest(schema));
            }
            digest.add(row, ofRow, number, offset);
        }
        HashMap<Integer, Map<String, long[]>> sums = new HashMap<>();
        digests.forEach((group, of) -> sums.put(group, of.sums()));
        return sums;
    }
}
