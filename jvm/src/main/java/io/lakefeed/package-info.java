/** What Spark by itself does not do fast or safely enough, for lakefeed and for any other Spark job. */
package io.lakefeed;
