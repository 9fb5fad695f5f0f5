"""The settings that a pipeline's Spark session has beside those of every session."""

from __future__ import annotations

from lakefeed.clients.spark.jars import cache_directory
from lakefeed.clients.spark.session import pools
from lakefeed.config.models import PipelineConfig

WAREHOUSE, CATALOG = "spark.sql.warehouse.dir", "spark.sql.catalogImplementation"


def spark_settings(config: PipelineConfig) -> dict[str, str]:
    """Return the settings of a pipeline; those of its block ``spark`` win."""
    own = {key: value if isinstance(value, str) else str(value) for key, value in config.spark.items()}
    found = pools() if config.shares_its_session else {}
    if config.spark_ui is not None:
        found |= config.spark_ui.settings()
    if own.get(CATALOG) != "hive":
        # Spark makes this folder, by default spark-warehouse/ where the command was started. Nothing is kept in it:
        # without Hive the session's catalog ends with the session, and tables over files name their own place.
        found[WAREHOUSE] = (cache_directory() / "spark-warehouse").as_uri()
    return found | own
