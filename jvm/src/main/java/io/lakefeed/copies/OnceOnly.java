package io.lakefeed.copies;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Pattern;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.DataTypes;

/**
 * Removes the duplicates that lakefeed's Kafka sink writes when it sends a batch again.
 *
 * <p>It reads the headers {@code lakefeed.batch} ({@code query/number}), {@code lakefeed.source} ({@code
 * topic/partition/offset}) and {@code lakefeed.row} (a number that distinguishes equal rows of a batch). The sink
 * starts a batch only when Kafka has acknowledged the last one, and sends a row to the same partition each time. So in
 * each partition, a row's duplicates precede the next batch. The state consists of the rows of the newest batch and the
 * highest offsets of older batches. Records without these headers are no duplicates.
 *
 * <p>If partitions were added to the topic between a row and its duplicate, the duplicate may be in another partition,
 * and is not removed.
 */
public final class OnceOnly {
    /** The column that {@link #marked} adds. */
    public static final String COPY = "lakefeed_copy";

    private static final String BATCH = "lakefeed.batch";
    private static final String SOURCE = "lakefeed.source";
    private static final String ROW = "lakefeed.row";
    private static final Pattern A_BATCH = Pattern.compile("[^/]+/\\d{1,18}");
    private static final Pattern A_SOURCE = Pattern.compile("[^/]+/\\d{1,10}/\\d{1,18}");

    private OnceOnly() {}

    /**
     * Returns the records without duplicates.
     *
     * @param records the columns of Spark's Kafka source, with headers; a batch or a stream
     */
    public static Dataset<Row> of(Dataset<Row> records) {
        return marked(records).filter("NOT " + COPY).drop(COPY);
    }

    /** Returns all records with the column {@value #COPY}: true if a record repeats an earlier one. */
    public static Dataset<Row> marked(Dataset<Row> records) {
        MapFunction<Row, String> writer = OnceOnly::writer;
        FlatMapGroupsWithStateFunction<String, Row, byte[], Row> once = OnceOnly::once;
        return records.groupByKey(writer, Encoders.STRING())
                .flatMapGroupsWithState(
                        once,
                        OutputMode.Append(),
                        Encoders.BINARY(),
                        Encoders.row(records.schema().add(COPY, DataTypes.BooleanType, false)),
                        GroupStateTimeout.NoTimeout());
    }

    /** Marks the records of one writer in one partition, and stores the newest batch's rows as state. */
    private static String writer(Row record) {
        Map<String, String> headers = headers(record);
        boolean known = headers.containsKey(SOURCE) || headers.containsKey(ROW);
        String batch = known ? headers.getOrDefault(BATCH, "") : "";
        String query = A_BATCH.matcher(batch).matches() ? batch.substring(0, batch.indexOf('/')) : "";
        return record.<String>getAs("topic") + "/" + record.<Integer>getAs("partition") + "/" + query;
    }

    private static Iterator<Row> once(String writer, Iterator<Row> records, GroupState<byte[]> state) {
        return new Marked(records, writer.endsWith("/") ? null : state);
    }

    private static Row with(Row record, boolean copy) {
        Object[] values = new Object[record.size() + 1];
        for (int at = 0; at < record.size(); at++) {
            values[at] = record.get(at);
        }
        values[record.size()] = copy;
        return RowFactory.create(values);
    }

    /** Marks the records of one writer in one partition; then stores the newest batch's rows as state. */
    private static final class Marked implements Iterator<Row> {
        private final Iterator<Row> records;
        private final GroupState<byte[]> state;
        private final Map<Long, RowsSeen> batches = new HashMap<>();
        private final RowsSeen known;
        private final long before;
        private long newest;

        Marked(Iterator<Row> records, GroupState<byte[]> state) {
            this.records = records;
            this.state = state;
            boolean begun = state != null && state.exists();
            this.before = begun ? RowsSeen.batch(state.get()) : -1;
            this.known = begun ? RowsSeen.read(state.get()) : RowsSeen.first();
            this.newest = before;
            batches.put(before, known);
        }

        @Override
        public boolean hasNext() {
            return records.hasNext();
        }

        @Override
        public Row next() {
            Row record = records.next();
            if (state == null) {
                return with(record, false);
            }
            Map<String, String> headers = headers(record);
            String named = headers.get(BATCH);
            long batch = Long.parseLong(named.substring(named.lastIndexOf('/') + 1));
            newest = Math.max(newest, batch);
            boolean copy = batch < before
                    ? isBehind(headers)
                    : !isNew(record, headers, batches.computeIfAbsent(batch, any -> known.other()));
            if (!records.hasNext()) {
                state.update(batches.get(newest).write(newest));
            }
            return with(record, copy);
        }

        /**
         * Returns whether a record of an older batch is a duplicate, by its offset in the source. The batch number is
         * not enough: after a rollback of its checkpoint, the writer uses the same numbers for other records. A record
         * without an offset in the source is no duplicate.
         */
        private boolean isBehind(Map<String, String> headers) {
            String source = headers.get(SOURCE);
            return source != null && known.reached(partition(source), offset(source));
        }
    }

    private static boolean isNew(Row record, Map<String, String> headers, RowsSeen seen) {
        String source = headers.get(SOURCE);
        String row = headers.get(ROW);
        if (row != null) {
            return seen.add(digest(record, source, row));
        }
        return seen.add(partition(source), offset(source));
    }

    private static String partition(String source) {
        return source.substring(0, source.lastIndexOf('/'));
    }

    private static long offset(String source) {
        return Long.parseLong(source.substring(source.lastIndexOf('/') + 1));
    }

    private static UUID digest(Row record, String source, String row) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            for (byte[] each : new byte[][] {
                record.<byte[]>getAs("key"), record.<byte[]>getAs("value"), bytes(source), bytes(row)
            }) {
                // Write the length before each part, so that different rows never give the same bytes.
                digest.update(ByteBuffer.allocate(4).putInt(each == null ? -1 : each.length).flip());
                digest.update(each == null ? new byte[0] : each);
            }
            ByteBuffer bytes = ByteBuffer.wrap(digest.digest());
            return new UUID(bytes.getLong(), bytes.getLong());
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    /** Returns lakefeed's headers of a record; if a header occurs twice, the last one counts. */
    private static Map<String, String> headers(Row record) {
        Map<String, String> found = new HashMap<>();
        int column = record.fieldIndex("headers");
        if (!record.isNullAt(column)) {
            for (Row header : record.<Row>getList(column)) {
                if (header.getString(0).startsWith("lakefeed.") && !header.isNullAt(1)) {
                    found.put(header.getString(0), new String(header.<byte[]>getAs(1), StandardCharsets.UTF_8));
                }
            }
        }
        // Any producer can write headers with these names: treat a malformed header as absent.
        if (!A_SOURCE.matcher(found.getOrDefault(SOURCE, "")).matches()) {
            found.remove(SOURCE);
        }
        return found;
    }
}
