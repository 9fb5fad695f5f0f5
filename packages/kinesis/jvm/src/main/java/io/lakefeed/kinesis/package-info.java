/** Reads Kinesis in micro-batches, whose ranges of sequence numbers are fixed before a batch is read. */
package io.lakefeed.kinesis;
