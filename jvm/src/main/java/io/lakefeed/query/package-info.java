/** Inspects a streaming query: its plan, its state and its current batch. */
package io.lakefeed.query;
