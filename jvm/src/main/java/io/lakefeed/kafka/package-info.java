/** Reads Kafka topics: with Spark's source and other rows, or in one step with decoding. */
package io.lakefeed.kafka;
