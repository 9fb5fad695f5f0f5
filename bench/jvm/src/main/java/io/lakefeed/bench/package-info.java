/** Measures the limits of a machine for {@code lakefeed-bench throughput}. */
package io.lakefeed.bench;
