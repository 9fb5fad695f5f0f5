/** Digests of the rows of a table, by which a commit proves what it has written. */
package io.lakefeed.receipts;
