/**
 * Complements Iceberg's actions for the upkeep of a table: one job at a time, one partition at a time, and safe removal
 * of orphans.
 */
package io.lakefeed.upkeep;
