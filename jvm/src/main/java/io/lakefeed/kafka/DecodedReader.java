package io.lakefeed.kafka;

import static io.lakefeed.commit.OutcomeFunction.NO_SCHEMA;
import static io.lakefeed.commit.OutcomeFunction.ROW;

import io.lakefeed.commit.OutcomeFunction;
import io.lakefeed.decode.DecodeFunction;
import io.lakefeed.decode.IdHeader;
import io.lakefeed.kafka.DirectOptions.OfTasks;
import io.lakefeed.kafka.DirectOptions.Policy;
import io.lakefeed.kafka.DirectOptions.DirectTask.Range;
import java.util.Iterator;
import java.util.Locale;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads, decodes and counts the records of one task's ranges, and returns the records that become rows. */
final class DecodedReader implements PartitionReader<InternalRow> {
    private static final UTF8String NO_REASON = UTF8String.fromString("");
    /** Spark's setting for how long its own reader waits for records. */
    private static final String TIMEOUT = "spark.network.timeout";

    private final Iterator<Range> ranges;
    private final OfTasks options;
    private final Policy policy;
    private final ChangeRule changes;
    private final DecodeFunction decode;
    private final IdHeader.Names idNames;
    private final OutcomeFunction outcome;
    private final long timeoutMs = SparkEnv.get().conf().getTimeAsMs(TIMEOUT, "120s");
    private final InternalRow nulls;
    private final GenericInternalRow metadata;
    private final JoinedRow joined = new JoinedRow();

    private Range range;
    private UTF8String topic;
    private PartitionConsumer consumer;
    private InternalRow row;

    DecodedReader(DirectOptions.DirectTask task, OfTasks options, DecodeFunction decode, OutcomeFunction outcome) {
        this.ranges = task.ranges().iterator();
        this.options = options;
        this.policy = options.policy();
        this.changes = options.changes();
        this.decode = decode;
        this.idNames = decode.idHeaders();
        this.outcome = outcome;
        this.nulls = new GenericInternalRow(new Object[options.fields()]);
        int beside = policy.keep().size() + (changes == null ? 0 : 1);
        this.metadata = beside == 0 ? null : new GenericInternalRow(new Object[beside]);
    }

    @Override
    public boolean next() {
        while (true) {
            if (consumer == null && !open()) {
                return false;
            }
            ConsumerRecord<byte[], byte[]> record = consumer.next(range.until(), timeoutMs);
            if (record == null) {
                consumer.keep();
                consumer = null;
            } else if (accept(record)) {
                return true;
            }
        }
    }

    private boolean open() {
        if (!ranges.hasNext()) {
            return false;
        }
        range = ranges.next();
        topic = UTF8String.fromString(range.topic());
        consumer = PartitionConsumer.take(
                options.consumers(), options.consumer(), new TopicPartition(range.topic(), range.partition()));
        consumer.begin(range.from());
        return true;
    }

    /** Decodes and counts a record; returns whether it becomes a row. */
    private boolean accept(ConsumerRecord<byte[], byte[]> record) {
        IdHeader[] idHeaders = idNames == null ? null : idHeaders(record.headers().toArray());
        InternalRow decoded = decode.decode(record.value(), idHeaders);
        int schemaId = decoded.isNullAt(1) ? NO_SCHEMA : decoded.getInt(1);
        String error = decoded.isNullAt(2) ? null : decoded.getUTF8String(2).toString();
        if (schemaId != NO_SCHEMA && !policy.refused().isEmpty()) {
            // Report the schema's refusal first, because it may be the cause of the value's error.
            String refused = policy.refused().get(schemaId);
            if (refused != null && (error == null || !error.contains(refused))) {
                error = "schema id " + schemaId + ": " + refused;
            }
        }
        if (policy.badTimestamp() != null && !RecordRows.fits(record.timestamp())) {
            error = String.format(Locale.ROOT, policy.badTimestamp(), record.timestamp());
        }
        int verdict = ROW;
        String reason = error;
        InternalRow value = nulls;
        if (error != null) {
            verdict = policy.onError();
        } else if (decoded.isNullAt(0)) {
            verdict = policy.onNull();
            reason = policy.nullReason();
        } else {
            value = decoded.getStruct(0, options.fields());
        }
        if (changes != null && verdict == ROW) {
            joined.apply(value, metadata(record));
            reason = changes.noKey(joined);
            verdict = reason == null ? ROW : policy.onError();
            metadata.update(policy.keep().size(), changes.deletes(joined, value == nulls));
        }
        if (reason != null && reason.startsWith(policy.unknownSchema())) {
            // This id comes from broken bytes and belongs to no schema, so it is not reported as a new one.
            schemaId = NO_SCHEMA;
        }
        UTF8String why = reason == null ? NO_REASON : UTF8String.fromString(reason);
        if (!outcome.invoke(topic, range.partition(), record.offset(), verdict, why, schemaId)) {
            return false;
        }
        if (changes == null) {
            row = metadata == null ? value : joined.apply(value, metadata(record));
        } else {
            row = joined;
        }
        return true;
    }

    private IdHeader[] idHeaders(Header[] all) {
        IdHeader[] found = null;
        for (Header header : all) {
            found = idNames.add(found, header.key(), header.value());
        }
        return found;
    }

    private InternalRow metadata(ConsumerRecord<byte[], byte[]> record) {
        for (int at = 0; at < policy.keep().size(); at++) {
            switch (policy.keep().get(at)) {
                case "topic" -> metadata.update(at, topic);
                case "partition" -> metadata.update(at, range.partition());
                case "offset" -> metadata.update(at, record.offset());
                case "key" -> metadata.update(at, record.key());
                case "timestamp" -> {
                    long time = record.timestamp();
                    boolean isTime = time != RecordBatch.NO_TIMESTAMP && RecordRows.fits(time);
                    metadata.update(at, isTime ? time * 1000 : null);
                }
                case "headers" -> metadata.update(at, headers(record.headers().toArray()));
                default -> throw new IllegalArgumentException("unknown metadata column in " + policy.keep());
            }
        }
        return metadata;
    }

    private static ArrayData headers(Header[] all) {
        if (all.length == 0) {
            return null;
        }
        Object[] rows = new Object[all.length];
        for (int at = 0; at < all.length; at++) {
            rows[at] = new GenericInternalRow(new Object[] {UTF8String.fromString(all[at].key()), all[at].value()});
        }
        return new GenericArrayData(rows);
    }

    @Override
    public InternalRow get() {
        return row;
    }

    /** Closes the consumer of a failed task, because the consumer may be the cause of the failure. */
    @Override
    public void close() {
        if (consumer != null) {
            consumer.close();
        }
    }
}
