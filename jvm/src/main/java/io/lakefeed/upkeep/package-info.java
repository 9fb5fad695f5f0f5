/** What upkeep of a table needs beside Iceberg's own actions: one at a time, one partition at a time, and safe orphans. */
package io.lakefeed.upkeep;
