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
 * Reads, decodes and counts the records of explicit offset ranges in one step. Use it with {@code
 * spark.read.format("io.lakefeed.kafka.DecodedRecords")}.
 *
 * <p>The rows are the same as with {@link KafkaRecords}, then {@code decode}, then {@code outcome}, but no row is
 * created for the undecoded record. {@link DirectOptions} has the options.
 */
public final class DecodedRecords implements TableProvider {
    /** Closes this JVM's consumers of a run; executors close their consumers after five minutes without use. */
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

        /** Returns a text without the options, which have credentials: Spark prints the text in plans. */
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
                throw new IllegalStateException("the batch " + options.commitId()
                        + " has ended, so its records cannot be counted: read them before the commit");
            }
            DecodeFunction decode = options.decoder();
            OutcomeFunction outcome = outcomes.function();
            DirectOptions.OfTasks ofTasks = options.ofTasks();
            // Spark serialises this function, so each task gets a copy of the objects that it refers to.
            return partition -> new DecodedReader((DirectOptions.DirectTask) partition, ofTasks, decode, outcome);
        }
    }
}
