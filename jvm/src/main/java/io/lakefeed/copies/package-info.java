/** Reads a topic without the duplicates that lakefeed's Kafka sink writes when it sends a batch again. */
package io.lakefeed.copies;
