"""The blocks of a pipeline file for operation: metrics and Spark's pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from lakefeed.config.addresses import is_loopback
from lakefeed.config.base import ConfigProblem, Model
from lakefeed.config.values import Period, seconds_of, trigger_seconds
from lakefeed.messages.pages import page_command

NO_COMMIT_SECONDS = 900
"""The default of ``no_commit_for`` in seconds, or three times the trigger if that is longer."""


class Metrics(Model):
    """Metrics and health of the feed, at /metrics and /health and in Spark's metrics sinks."""

    partitions: int = Field(200, ge=0, le=100_000)
    """The most partitions with their own metric series. Sums and maxima always cover all partitions."""
    no_commit_for: Period | None = None
    """/health fails if the topics have unread records and the feed has not committed for this time. Default: 15
    minutes, or three times the trigger if that is longer."""

    def no_commit_seconds(self, trigger: str) -> float:
        """Return ``no_commit_for`` in seconds, or its default for this trigger."""
        if self.no_commit_for is not None:
            return seconds_of(self.no_commit_for)
        try:
            return max(NO_COMMIT_SECONDS, 3 * trigger_seconds(trigger))
        except ValueError:
            return NO_COMMIT_SECONDS


FILTERS = "spark.ui.filters"


class SparkUi(Model):
    """Spark's own web pages: jobs, stages, SQL plans and the streaming query. They have no login."""

    host: str = Field("127.0.0.1", min_length=1, pattern=r"^[0-9A-Za-z.:_-]+$")
    """The address to listen on. If other machines can reach it, spark.ui.filters must name a filter with a login."""
    port: int = Field(0, ge=0, le=65535, description="Port; 0 for any free port.")

    @model_validator(mode="before")
    @classmethod
    def _switch(cls, data: Any) -> Any:
        return {} if data is True else data

    @property
    def is_local(self) -> bool:
        """Return whether only this machine can reach the pages."""
        return is_loopback(self.host)

    def settings(self) -> dict[str, str]:
        """Return Spark's settings for the pages. No user can kill jobs there, since the pages have no roles."""
        return {"spark.ui.enabled": "true", "spark.ui.port": str(self.port), "spark.ui.killEnabled": "false"}

    def problem(self, spark: Mapping[str, object]) -> ConfigProblem | None:
        """Return the problem of pages that other machines can reach without a login; None if there is none."""
        if self.is_local or spark.get(FILTERS):
            return None
        what = f"other machines can reach spark_ui.host: {self.host}, and Spark's pages have no login"
        filtered = f"spark: {{{FILTERS}: org.apache.spark.ui.JWSFilter, …}}"
        hint = f"write host: 127.0.0.1; or {filtered}: see {page_command('monitor')}"
        return ConfigProblem(what, hint=hint)
