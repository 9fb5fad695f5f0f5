/** Writes the rows of one read into files. The files become visible only if the read has counted all its records. */
package io.lakefeed.inspect;
