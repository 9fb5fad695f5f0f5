package io.lakefeed.kafka;

import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/** The ranges that one task reads, one after the other. */
record DirectTask(List<Range> ranges) implements InputPartition {
    /** Offsets of one partition, without {@code until}. */
    record Range(String topic, int partition, long from, long until) implements java.io.Serializable {}
}
