/** Adds to Iceberg's upkeep of tables: one job at a time, single partitions, and a safe removal of orphan files. */
package io.lakefeed.upkeep;
