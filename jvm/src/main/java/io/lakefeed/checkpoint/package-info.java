/** Structured Streaming's checkpoint on an object store: few requests, and never two queries on one checkpoint. */
package io.lakefeed.checkpoint;
