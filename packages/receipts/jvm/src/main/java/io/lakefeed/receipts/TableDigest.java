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
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.unsafe.types.UTF8String;

/** Computes the digests of a table's rows, as {@link RowDigest} did when they were written. */
public final class TableDigest {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TreeMap<Long, Span> NO_SPANS = new TreeMap<>();

    private TableDigest() {}

    /** The offsets of one partition that belong to one group of commits; group -1 has the offsets of no commit. */
    private record Span(long start, long end, int group) implements Serializable {
        boolean has(long offset) {
            return start <= offset && offset < end;
        }
    }

    /**
     * Returns the sums of each group's rows as JSON, {@code {"group":{…}}}; group -1 has the rows of no span.
     *
     * @param rows rows with the columns of the table
     * @param spans {@code [["topic/partition", start, end, group], …]}, which must not overlap
     */
    public static String of(
            SparkContext spark, Dataset<?> rows, Table table, String secret, List<String> positions, String spans)
            throws JsonProcessingException {
        HashMap<String, TreeMap<Long, Span>> known = new HashMap<>();
        for (JsonNode each : JSON.readTree(spans)) {
            known.computeIfAbsent(each.get(0).asText(), any -> new TreeMap<>())
                    .put(each.get(1).asLong(), new Span(each.get(1).asLong(), each.get(2).asLong(), each.get(3).asInt()));
        }
        String schema = SchemaParser.toJson(SparkSchemaUtil.convert(table.schema(), rows.schema()));
        Receipts.Settings settings = Receipts.Settings.of(spark, secret, positions);
        Map<Integer, Map<String, long[]>> sums = new TreeMap<>();
        rows.queryExecution()
                .toRdd()
                .toJavaRDD()
                .mapPartitions(part -> List.of(sums(part, SchemaParser.fromJson(schema), settings, known)).iterator())
                .collect()
                .forEach(part -> part.forEach((group, of) ->
                        Receipts.add(sums.computeIfAbsent(group, any -> new TreeMap<>()), of)));
        settings.key().destroy();
        ObjectNode json = JSON.createObjectNode();
        sums.forEach((group, of) -> json.set(String.valueOf(group), Receipts.json(of)));
        return JSON.writeValueAsString(json);
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
                Map.Entry<Long, Span> before = known.getOrDefault(topic + "/" + number, NO_SPANS).floorEntry(offset);
                boolean isKnown = before != null && before.getValue().has(offset);
                span = isKnown ? before.getValue() : new Span(offset, offset + 1, -1);
                digest = digests.computeIfAbsent(span.group(), any -> settings.digest(schema));
            }
            digest.add(row, ofRow, number, offset);
        }
        HashMap<Integer, Map<String, long[]>> sums = new HashMap<>();
        digests.forEach((group, of) -> sums.put(group, of.sums()));
        return sums;
    }
}
