/** Writes a feed's rows to a database: tasks stage them, and one transaction of the driver commits them. */
package io.lakefeed.jdbc;
