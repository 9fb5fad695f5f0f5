/** Finds the rows of changed keys in memory, so that an upsert reads none of the table's files. */
package io.lakefeed.upsert;
