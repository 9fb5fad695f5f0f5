/** Runs the queries of a dashboard's panels, which can only read, in the feed's application. */
package io.lakefeed.dashboard;
