"""Loads Iceberg's own table object from the catalogs of a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load_table(spark: SparkSession, table: str) -> Any:
    """Load a table as Iceberg's Java object, as it is now."""
    gateway: Any = spark._jvm
    return gateway.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)


def properties_of(spark: SparkSession, table: str) -> dict[str, str]:
    """Return the properties of a table, lakefeed's own among them."""
    return dict(load_table(spark, table).properties())
