/** Runs the queries of a dashboard's panels in the application of the feed; they can only read. */
package io.lakefeed.dashboard;
