"""A bound on records a second, kept by a token bucket in the JVM (``io.lakefeed.produce.Pace``)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def paced(records: DataFrame, rate: float | None) -> DataFrame:
    """The same records, no more than ``rate`` of them a second over all tasks.

    On a cluster each executor that runs now gets an equal share, so executors that join later raise the total.

    Args:
        records: with the binary column ``value``.
        rate: records a second; None for no bound.

    Raises:
        ConfigError: the rate is not above 0.
    """
    if rate is None:
        return records
    if not rate > 0:
        raise ConfigError(f"a rate is above 0 records a second, not {rate:g}", where="rate")
    from pyspark.sql import functions as F

    spark = records.sparkSession
    # Spark configures functions through their catalog, and reads a catalog's options once.
    catalog = f"lakefeed_pace_{uuid.uuid4().hex[:12]}"
    spark.conf.set(f"spark.sql.catalog.{catalog}", "io.lakefeed.produce.PaceCatalog")
    spark.conf.set(f"spark.sql.catalog.{catalog}.rows-per-second", str(rate / _executors(spark)))
    return records.withColumn("value", F.expr(f"{catalog}.pace(value)"))


def _executors(spark: SparkSession) -> int:
    """Executor JVMs; the driver counts as one where it runs the tasks itself."""
    context: Any = spark.sparkContext._jsc
    return max(1, int(context.sc().getExecutorMemoryStatus().size()) - 1)
