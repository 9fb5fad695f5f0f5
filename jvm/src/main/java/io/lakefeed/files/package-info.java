/** Writes local files that survive a loss of power, for a warehouse without an object store. */
package io.lakefeed.files;
