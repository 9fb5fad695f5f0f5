/**
 * Reads Kinesis in micro-batches by the direct approach: ranges of sequence numbers that are fixed before a batch is
 * read.
 */
package io.lakefeed.kinesis;
