/** Adds what Spark cannot do fast or safely enough by itself, for lakefeed and for any other Spark job. */
package io.lakefeed;
