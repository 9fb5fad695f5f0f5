/** The reader of values that are lines of CSV. */
package io.lakefeed.csv;
