/** Encodes rows to Parquet column by column, for Iceberg tables and for Spark's Parquet files. */
package io.lakefeed.parquet;
