package io.lakefeed.commit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.TreeMap;

/**
 * The offsets of a feed's topics that a table has: for each partition, sorted intervals that neither touch nor overlap.
 *
 * <p>As JSON: {@code {"topic":{"id":"…","offsets":{"0":[start,end,start,end]}}}}. A recreated topic begins without
 * offsets, because its offsets belong to other records than the deleted topic's.
 */
final class Covered {
    /** A topic's intervals by partition, from their start to their end. */
    private record Topic(String id, TreeMap<Integer, TreeMap<Long, Long>> partitions) {}

    private final TreeMap<String, Topic> topics = new TreeMap<>();

    static Covered nothing() {
        return new Covered();
    }

    static Covered of(JsonNode json) {
        Covered covered = new Covered();
        json.properties().forEach(topic -> {
            Topic into = covered.topic(topic.getKey(), topic.getValue().path("id").asText(""));
            topic.getValue().path("offsets").properties().forEach(partition -> {
                TreeMap<Long, Long> intervals = new TreeMap<>();
                JsonNode bounds = partition.getValue();
                for (int at = 0; at + 1 < bounds.size(); at += 2) {
                    intervals.put(bounds.get(at).asLong(), bounds.get(at + 1).asLong());
                }
                into.partitions.put(Integer.valueOf(partition.getKey()), intervals);
            });
        });
        return covered;
    }

    JsonNode toJson() {
        ObjectNode json = JsonNodeFactory.instance.objectNode();
        topics.forEach((name, topic) -> {
            ObjectNode offsets = json.putObject(name).put("id", topic.id).putObject("offsets");
            topic.partitions.forEach((partition, intervals) -> {
                ArrayNode bounds = offsets.putArray(partition.toString());
                intervals.forEach((start, end) -> bounds.add(start).add(end));
            });
        });
        return json;
    }

    boolean isEmpty() {
        return topics.values().stream().allMatch(topic -> topic.partitions.values().stream().allMatch(Map::isEmpty));
    }

    void add(JsonNode ranges) {
        each(ranges, (name, id, partition, start, end) -> add(intervals(name, id, partition), start, end));
    }

    void remove(JsonNode ranges) {
        each(ranges, (name, id, partition, start, end) -> remove(intervals(name, id, partition), start, end));
    }

    void keep(JsonNode ranges) {
        topics.entrySet().removeIf(
                topic -> !topic.getValue().id.equals(ranges.path(topic.getKey()).path("id").asText(null)));
    }

    /** Describes the first of these ranges that overlaps with the table's offsets; null if none does. */
    String overlap(JsonNode ranges) {
        String[] found = new String[1];
        each(ranges, (name, id, partition, start, end) -> {
            Map.Entry<Long, Long> before = intervals(name, id, partition).lowerEntry(end);
            if (found[0] == null && before != null && before.getValue() > start) {
                found[0] = name + "-" + partition + " has [" + before.getKey() + ", " + before.getValue() + ") already";
            }
        });
        return found[0];
    }

    private static void add(TreeMap<Long, Long> intervals, long start, long end) {
        long from = start;
        long to = end;
        Map.Entry<Long, Long> touching = intervals.floorEntry(to);
        while (touching != null && touching.getValue() >= from) {
            from = Math.min(from, touching.getKey());
            to = Math.max(to, touching.getValue());
            intervals.remove(touching.getKey());
            touching = intervals.floorEntry(to);
        }
        intervals.put(from, to);
    }

    private static void remove(TreeMap<Long, Long> intervals, long start, long end) {
        Map.Entry<Long, Long> cut = intervals.lowerEntry(end);
        while (cut != null && cut.getValue() > start) {
            intervals.remove(cut.getKey());
            if (cut.getKey() < start) {
                intervals.put(cut.getKey(), start);
            }
            if (cut.getValue() > end) {
                intervals.put(end, cut.getValue());
            }
            cut = intervals.lowerEntry(Math.min(end, cut.getKey()));
        }
    }

    private TreeMap<Long, Long> intervals(String topic, String id, int partition) {
        return topic(topic, id).partitions.computeIfAbsent(partition, key -> new TreeMap<>());
    }

    private Topic topic(String name, String id) {
        Topic known = topics.get(name);
        if (known == null || !known.id.equals(id)) {
            known = new Topic(id, new TreeMap<>());
            topics.put(name, known);
        }
        return known;
    }

    /** Receives all ranges that are not empty. */
    private interface Range {
        void accept(String topic, String id, int partition, long start, long end);
    }

    private static void each(JsonNode ranges, Range range) {
        ranges.properties().forEach(topic -> topic.getValue().path("ranges").properties().forEach(partition -> {
            long start = partition.getValue().path(0).asLong();
            long end = partition.getValue().path(1).asLong();
            if (start < end) {
                String id = topic.getValue().path("id").asText("");
                range.accept(topic.getKey(), id, Integer.parseInt(partition.getKey()), start, end);
            }
        }));
    }
}
