/** Spark's Kafka source, with rows for records whose timestamp Spark cannot hold. */
package io.lakefeed.kafka;
