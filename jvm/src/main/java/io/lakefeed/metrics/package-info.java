/** Numbers of running feeds in Spark's metric system. */
package io.lakefeed.metrics;
