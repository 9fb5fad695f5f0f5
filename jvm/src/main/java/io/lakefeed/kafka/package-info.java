/** Reads Kafka topics: with the options of Spark's source, or in one step with decoding. */
package io.lakefeed.kafka;
