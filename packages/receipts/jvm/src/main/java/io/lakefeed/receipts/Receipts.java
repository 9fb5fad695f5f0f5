package io.lakefeed.receipts;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.lakefeed.Secrets;
import io.lakefeed.commit.Outcomes;
import io.lakefeed.parquet.ColumnarModel;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.Schema;
import org.apache.iceberg.io.FileAppender;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.Utils;

/** Gives each commit of a feed a receipt: the digest of the rows that its tasks have passed to the files' encoders. */
public final class Receipts implements ColumnarModel.RowObserver {
    /** The local property of Spark with the {@link Batch} that this thread writes. */
    private static final String BATCH = "spark.lakefeed.receipt";

    private static final ObjectMapper JSON = new ObjectMapper();
    /** The keys that executors have, by application and name: all batches of a feed share one broadcast. */
    private static final Map<String, Broadcast<byte[]>> KEYS = new ConcurrentHashMap<>();

    /**
     * What {@link RowDigest} needs.
     *
     * @param key a broadcast, so that the key is in no property, which Spark's pages and logs show
     */
    record Settings(Broadcast<byte[]> key, HashMap<String, Long> since) implements Serializable {
        static Settings of(SparkContext spark, String secret, HashMap<String, Long> since) {
            byte[] key = Secrets.get(secret).getBytes(StandardCharsets.UTF_8);
            Broadcast<byte[]> shared = KEYS.compute(spark.applicationId() + " " + secret, (name, known) -> {
                boolean same = known != null && Arrays.equals(known.value(), key);
                return same ? known : JavaSparkContext.fromSparkContext(spark).broadcast(key);
            });
            return new Settings(shared, since);
        }

        RowDigest digest(Schema schema) {
            return new RowDigest(schema, key.value(), since);
        }
    }

    /** A batch; Spark counts the files of each task of a write once, also after a retry. */
    private record Batch(CollectionAccumulator<Map<String, long[]>> files, Settings settings) implements Serializable {}

    /**
     * Begins the receipt of the batch that this thread writes next; {@link #end} ends it.
     *
     * @param entries the key of the receipt in the summary, and keys whose entries become empty
     * @param begun the receipt's fields that are known before the batch, as JSON, with the total before the batch
     * @return the receipt, once it is in a commit: its keyed digest, a space, and the receipt as JSON
     */
    public static AtomicReference<String> begin(
            SparkContext spark, String commitId, String secret, List<String> entries, String begun, String ranges)
            throws JsonProcessingException {
        HashMap<String, Long> since = new HashMap<>();
        JSON.readTree(begun).path("since").properties().forEach(each -> since.put(each.getKey(), each.getValue().asLong()));
        Batch batch = new Batch(new CollectionAccumulator<>(), Settings.of(spark, secret, since));
        spark.register(batch.files);
        spark.setLocalProperty(BATCH, Base64.getEncoder().encodeToString(Utils.serialize(batch)));
        AtomicReference<String> receipt = new AtomicReference<>();
        Outcomes outcomes = Outcomes.of(commitId);
        outcomes.describe(() -> {
            String body = receipt(begun, batch.files.value());
            byte[] seal = hmac(batch.settings.key().value(), ranges + "\n" + outcomes.toJson() + "\n" + body);
            receipt.set(HexFormat.of().formatHex(seal) + " " + body);
            Map<String, String> written = new HashMap<>();
            entries.forEach(entry -> written.put(entry, entry.equals(entries.get(0)) ? receipt.get() : ""));
            return written;
        });
        return receipt;
    }

    /** Ends the receipt of this thread's batch. */
    public static void end(SparkContext spark) {
        spark.setLocalProperty(BATCH, null);
    }

    private static String receipt(String begun, List<Map<String, long[]>> files) {
        try {
            ObjectNode receipt = (ObjectNode) JSON.readTree(begun);
            Map<String, long[]> sums = new TreeMap<>();
            files.forEach(each -> add(sums, each));
            receipt.set("sums", json(sums));
            sums.keySet().removeIf(name -> name.contains("/"));
            receipt.get("total").properties().forEach(each -> {
                String[] words = each.getValue().asText().split(",");
                add(sums, Map.of(each.getKey(), Arrays.stream(words).mapToLong(word -> Long.parseUnsignedLong(word, 16)).toArray()));
            });
            receipt.set("total", json(sums));
            return JSON.writeValueAsString(receipt);
        } catch (JsonProcessingException wrong) {
            throw new UncheckedIOException(wrong);
        }
    }

    /** Adds sums up: two words of digests and a number of rows; the least and the greatest offset of a partition. */
    static void add(Map<String, long[]> to, Map<String, long[]> more) {
        more.forEach((name, sum) -> to.merge(name, sum, (one, two) -> {
            long[] both = {one[0] + two[0], one[1] + two[1], one[2] + two[2]};
            return one.length == both.length
                    ? both
                    : new long[] {both[0], both[1], both[2], Math.min(one[3], two[3]), Math.max(one[4], two[4])};
        }));
    }

    /** Returns sums as JSON, the numbers of each as hexadecimal text. */
    static ObjectNode json(Map<String, long[]> sums) {
        ObjectNode json = JSON.createObjectNode();
        sums.forEach((name, sum) -> json.put(
                name, Arrays.stream(sum).mapToObj(Long::toHexString).collect(Collectors.joining(","))));
        return json;
    }

    static byte[] hmac(byte[] key, String text) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
        } catch (GeneralSecurityException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    @Override
    public FileAppender<InternalRow> observe(FileAppender<InternalRow> file, Schema schema) {
        TaskContext task = TaskContext.get();
        String batch = task == null ? null : task.getLocalProperty(BATCH);
        return batch == null ? file : new Observed(file, schema, batch(batch));
    }

    /** Reads a batch in a task. The accumulator registers itself there, as one in the task's own code does. */
    private static Batch batch(String text) {
        return Utils.deserialize(Base64.getDecoder().decode(text), Batch.class.getClassLoader());
    }

    /** Passes the rows of one file on to its appender, and adds them to the batch's receipt. */
    private static final class Observed implements FileAppender<InternalRow> {
        private final FileAppender<InternalRow> file;
        private final RowDigest digest;
        private final Batch batch;
        private boolean closed;

        Observed(FileAppender<InternalRow> file, Schema schema, Batch batch) {
            this.file = file;
            this.batch = batch;
            this.digest = batch.settings.digest(schema);
        }

        @Override
        public void add(InternalRow row) {
            int partition = digest.partition(row);
            long offset = digest.offset(row);
            if (partition < 0 || offset < 0) {
                throw new IllegalStateException("a row has no position, and receipts need it: keep kafka_topic,"
                        + " kafka_partition and kafka_offset in the transform, or remove receipts");
            }
            digest.add(row, digest.topic(row), partition, offset);
            file.add(row);
        }

        @Override
        public void close() throws IOException {
            file.close();
            if (!closed) {
                closed = true;
                batch.files.add(digest.sums());
            }
        }

        @Override
        public Metrics metrics() {
            return file.metrics();
        }

        @Override
        public long length() {
            return file.length();
        }

        @Override
        public List<Long> splitOffsets() {
            return file.splitOffsets();
        }
    }
}
