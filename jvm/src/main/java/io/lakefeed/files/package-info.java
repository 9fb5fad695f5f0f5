/** Files on this machine's disk, for a warehouse without a store. */
package io.lakefeed.files;
