/** Writes a feed's rows to a database: the tasks stage them, one transaction of the driver commits them. */
package io.lakefeed.jdbc;
