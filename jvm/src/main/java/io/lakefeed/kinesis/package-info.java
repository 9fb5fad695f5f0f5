/** Kinesis as a source of micro-batches by the direct approach: ranges of sequence numbers, fixed before a batch is read. */
package io.lakefeed.kinesis;
