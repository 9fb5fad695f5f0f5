package io.lakefeed.commit;

import io.lakefeed.SqlFunction;
import io.lakefeed.decode.LeftOut;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * {@code outcome(topic, partition, offset, verdict, reason, schema id)} counts a record and returns whether it becomes
 * a row.
 *
 * <p>Use the function in a filter directly after the decoder: there, each record passes once and in order.
 */
public final class OutcomeFunction extends SqlFunction<Boolean> {
    private static final long serialVersionUID = 1L;
    /** The verdict on a dead letter. Verdicts are the numbers of {@code lakefeed.records.decode.verdict}. */
    private static final int DEAD_LETTER = 1;

    private static final int SKIPPED = 2;
    private static final int STOP = 3;
    public static final int ROW = 0;

    public static final int NO_SCHEMA = -1;

    private final Outcomes outcomes;

    private transient Outcomes.RangeOutcome range;
    private transient UTF8String topic;
    private transient int lastSchema;
    private transient LeftOut leftOut;

    OutcomeFunction(Outcomes outcomes) {
        super(
                "outcome",
                "outcome",
                DataTypes.BooleanType,
                DataTypes.StringType,
                DataTypes.IntegerType,
                DataTypes.LongType,
                DataTypes.IntegerType,
                DataTypes.StringType,
                DataTypes.IntegerType);
        this.outcomes = outcomes;
    }

    public boolean invoke(
            UTF8String topic, int partition, long offset, int verdict, UTF8String reason, int schemaId) {
        Outcomes.RangeOutcome current = range;
        if (current == null || current.partition != partition || !topic.equals(this.topic)) {
            current = begin(topic, partition, offset);
        }
        current.records++;
        if (leftOut.isFound()) {
            if (verdict == ROW) {
                current.leaveOut(leftOut, offset);
            }
            leftOut.clear();
        }
        if (schemaId != lastSchema) {
            lastSchema = schemaId;
            if (schemaId != NO_SCHEMA) {
                current.schemaIds.add(schemaId);
            }
        }
        switch (verdict) {
            case DEAD_LETTER -> current.deadLetter(offset, reason.toString());
            case SKIPPED -> current.skipped++;
            case STOP -> current.stop(offset, reason.toString());
            default -> {
                return true;
            }
        }
        return false;
    }

    private Outcomes.RangeOutcome begin(UTF8String topic, int partition, long offset) {
        // Copy the topic, because the next record overwrites the row's bytes.
        this.topic = topic.clone();
        range = new Outcomes.RangeOutcome(topic.toString(), partition, offset);
        lastSchema = NO_SCHEMA;
        leftOut = LeftOut.ofThread();
        outcomes.add(range);
        return range;
    }

    @Override
    public boolean isResultNullable() {
        return false;
    }
}
