package io.lakefeed.kinesis;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * Reads a stream of Kinesis in micro-batches of fixed ranges.
 *
 * <p>Kinesis does not report its newest sequence number. So the driver reads a batch ahead, and stores each shard's
 * number of records and last sequence number. Because Spark's offset log has both, executors read the same records in
 * each attempt. Spark runs no batch without records, so its log does not show the end of a shard that has no new
 * records.
 */
final class KinesisStream implements MicroBatchStream, SupportsTriggerAvailableNow {
    private final StreamConnection connection;
    private final DataStream stream;
    private final Settings settings;
    private final Beginning beginning;
    private final Map<Integer, ShardWalk> walks = new HashMap<>();
    private final AtOnce atOnce = new AtOnce();
    private Retention retention;
    private Long until;

    /**
     * The settings in the options.
     *
     * @param maxRecords the most records of a batch, in all shards
     * @param starting the positions where a query without a checkpoint begins, as JSON; null to use {@code latest}
     * @param latest whether a new feed skips existing records
     */
    record Settings(long maxRecords, String starting, boolean latest) {}

    KinesisStream(StreamConnection connection, Settings settings, Beginning beginning) {
        this.connection = connection;
        this.stream = new DataStream(connection);
        this.settings = settings;
        this.beginning = beginning;
    }

    @Override
    public Offset initialOffset() {
        return StreamOffset.of(beginning.orElse(() -> first().json()));
    }

    private StreamOffset first() {
        if (settings.starting() != null) {
            return StreamOffset.of(settings.starting());
        }
        SortedMap<Integer, StreamOffset.At> shards = new TreeMap<>();
        if (settings.latest()) {
            Mark now = Mark.since(System.currentTimeMillis());
            for (DataStream.Shard each : stream.shards()) {
                Mark mark = each.open() ? now : new Mark(Mark.OLDEST.where(), 0, true);
                shards.put(each.number(), new StreamOffset.At(0, mark));
            }
        }
        return new StreamOffset(connection.stream(), shards);
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        return ReadLimit.maxRows(settings.maxRecords());
    }

    /** Makes the run end after the records that have arrived until now. */
    @Override
    public void prepareForTriggerAvailableNow() {
        until = System.currentTimeMillis();
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("Spark must call latestOffset(start, limit) for this source");
    }

    @Override
    public Offset latestOffset(Offset from, ReadLimit limit) {
        StreamOffset start = (StreamOffset) from;
        long most = limit instanceof ReadMaxRows rows ? rows.maxRows() : settings.maxRecords();
        if (retention == null) {
            retention = new Retention(stream.summary().retentionMs());
        }
        SortedMap<Integer, StreamOffset.At> now = start.shards();
        while (true) {
            List<DataStream.Shard> listed = stream.shards();
            addReadable(now, listed);
            boolean again = readAhead(now, listed, most);
            if (now.entrySet().stream().anyMatch(each -> each.getValue().at() > start.at(each.getKey()).at())) {
                return new StreamOffset(connection.stream(), now);
            }
            if (!again) {
                return start;
            }
        }
    }

    /**
     * Adds the shards that can be read. A shard can be read when its parents have been read to their ends, so that a
     * key's records stay in order.
     */
    private static void addReadable(SortedMap<Integer, StreamOffset.At> known, List<DataStream.Shard> listed) {
        Set<Integer> there = listed.stream().map(DataStream.Shard::number).collect(Collectors.toSet());
        Set<Integer> finished = new HashSet<>();
        known.forEach((number, at) -> {
            if (at.mark().finished()) {
                finished.add(number);
            }
        });
        for (DataStream.Shard each : listed) {
            boolean ready = each.parents().stream()
                    .allMatch(parent -> known.containsKey(parent) ? finished.contains(parent) : !there.contains(parent));
            if (ready) {
                known.putIfAbsent(each.number(), StreamOffset.At.BEGINNING);
            }
        }
    }

    /** Moves the positions to the end of the next batch; returns whether a further call can find more records. */
    private boolean readAhead(SortedMap<Integer, StreamOffset.At> positions, List<DataStream.Shard> listed, long most) {
        Set<Integer> there = listed.stream().map(DataStream.Shard::number).collect(Collectors.toSet());
        List<ShardWalk> open = new ArrayList<>();
        positions.forEach((number, at) -> {
            if (!at.mark().finished()) {
                if (!there.contains(number)) {
                    throw StreamFailure.lost(DataStream.shardId(number) + " no longer exists; the feed has read "
                            + at.at() + " of its records, and not to its end");
                }
                ShardWalk walk = walks.get(number);
                if (walk == null || !walk.isAt(at) || retention.hasReached(walk.at().mark())) {
                    walk = new ShardWalk(stream, number, at, retention);
                    walks.put(number, walk);
                }
                open.add(walk);
            }
        });
        long each = Math.max(1, most / Math.max(1, open.size()));
        atOnce.run(open, walk -> walk.advance(each, until));
        boolean again = false;
        for (ShardWalk walk : open) {
            positions.put(walk.shard(), walk.at());
            again |= walk.at().mark().finished() || (until != null && !walk.isDone());
        }
        return again;
    }

    @Override
    public InputPartition[] planInputPartitions(Offset from, Offset to) {
        StreamOffset start = (StreamOffset) from;
        return ((StreamOffset) to)
                .shards().entrySet().stream()
                        .filter(each -> each.getValue().at() > start.at(each.getKey()).at())
                        .map(each -> ShardRange.of(connection, each.getKey(), start.at(each.getKey()), each.getValue()))
                        .toArray(InputPartition[]::new);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new ShardRange.Factory();
    }

    @Override
    public Offset deserializeOffset(String json) {
        return StreamOffset.of(json);
    }

    @Override
    public void commit(Offset end) {
        // Nothing to do: the ledger and Spark's log have the positions, and Kinesis does not store readers' positions.
    }

    @Override
    public void stop() {
        atOnce.close();
    }
}
