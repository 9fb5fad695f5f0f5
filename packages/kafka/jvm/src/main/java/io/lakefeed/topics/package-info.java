/** Provides an SQL function that names a row's batch, so that readers of a topic can identify copies. */
package io.lakefeed.topics;
