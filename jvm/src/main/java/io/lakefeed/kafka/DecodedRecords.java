package io.lakefeed.kafka;

import io.lakefeed.commit.OutcomeFunction;
import io.lakefeed.commit.Outcomes;
import io.lakefeed.decode.DecodeFunction;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Reads, decodes and counts the records of explicit offset ranges in one step: {@code
 * spark.read.format("io.lakefeed.kafka.DecodedRecords")}.
 *
 * <p>The rows are those that {@link KafkaRecords}, {@code decode} and {@code outcome} give one after the other; no row
 * exists of a record that is not decoded. {@link DirectOptions} has the options.
 */
public final class DecodedRecords implements TableProvider {
    /** Spark creates it. */
    public DecodedRecords() {}

    /** Closes what this JVM has kept for the next batch of a run, which has ended. Executors close theirs when they are old. */
    public static void endRun(String run) {
        PartitionConsumer.closeKept(run);
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return new DirectOptions(options).columns();
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        DirectOptions options = new DirectOptions(new CaseInsensitiveStringMap(properties));
        return new SourceTable(
                "decoded records", options.columns(), Set.of(TableCapability.BATCH_READ), given -> new Ranges(options));
    }

    record Ranges(DirectOptions options) implements Scan, Batch {
        @Override
        public StructType readSchema() {
            return options.columns();
        }

        /** Shows only this: Spark prints plans, and the options have credentials. */
        @Override
        public String description() {
            return "decoded records";
        }

        @Override
        public String toString() {
            return description();
        }

        @Override
        public Batch toBatch() {
            return this;
        }

        @Override
        public InputPartition[] planInputPartitions() {
            return options.tasks();
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            Outcomes outcomes = Outcomes.of(options.commitId());
            if (outcomes == null) {
                throw new IllegalStateException("the batch has ended: its records cannot be counted any more");
            }
            DecodeFunction decode = options.decoder();
            OutcomeFunction outcome = outcomes.function();
            DirectOptions.OfTasks ofTasks = options.ofTasks();
            // A task has its own copies of these.
            return partition -> new DecodedReader((DirectOptions.DirectTask) partition, ofTasks, decode, outcome);
        }
    }
}
