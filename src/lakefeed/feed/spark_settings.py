"""The additional settings of a pipeline's Spark session."""

from __future__ import annotations

from lakefeed.clients.spark.jars import cache_directory
from lakefeed.clients.spark.session import pools
from lakefeed.config.models import PipelineConfig

WAREHOUSE, CATALOG = "spark.sql.warehouse.dir", "spark.sql.catalogImplementation"


def spark_settings(config: PipelineConfig) -> dict[str, str]:
    """Return the Spark settings of a pipeline; its ``spark`` block overrides all others."""
    own = {key: str(value) for key, value in config.spark.items()}
    settings = pools() if config.shares_its_session else {}
    if config.spark_ui is not None:
        settings |= config.spark_ui.settings()
    if own.get(CATALOG) != "hive":
        # Spark creates this folder, by default spark-warehouse/ in the current directory. Without Hive it stays empty:
        # the session's catalog ends with the session, and tables over files have their own locations.
        settings[WAREHOUSE] = (cache_directory() / "spark-warehouse").as_uri()
    return settings | own
