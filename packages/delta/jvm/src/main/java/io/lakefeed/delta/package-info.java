/** Commits a feed's rows to a Delta table together with the entry of the feed's ledger. */
package io.lakefeed.delta;
