/** Reads records that are lines of CSV. */
package io.lakefeed.csv;
