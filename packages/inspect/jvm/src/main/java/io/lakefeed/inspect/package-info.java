/** Writes the rows of one read into files, which appear only if the counts of their records allow it. */
package io.lakefeed.inspect;
