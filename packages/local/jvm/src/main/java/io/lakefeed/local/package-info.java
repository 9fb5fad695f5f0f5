/** Shows decoded records without a Spark session, and slows down a producer. */
package io.lakefeed.local;
