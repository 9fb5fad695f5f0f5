/** A feed's rows in a database: staged by the tasks, landed by one transaction of the driver. */
package io.lakefeed.jdbc;
