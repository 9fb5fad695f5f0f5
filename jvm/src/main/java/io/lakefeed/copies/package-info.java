/** Records that lakefeed's Kafka sink has sent twice, and a reader that takes them once. */
package io.lakefeed.copies;
