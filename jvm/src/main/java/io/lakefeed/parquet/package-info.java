/** Encodes rows to Parquet column by column, for Iceberg tables with flat schemas. */
package io.lakefeed.parquet;
