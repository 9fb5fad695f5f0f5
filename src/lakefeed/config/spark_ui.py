"""The block of a pipeline file that turns Spark's own pages on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from lakefeed.config.base import ConfigProblem, Model
from lakefeed.config.connections import is_loopback
from lakefeed.messages.pages import page_command

FILTERS = "spark.ui.filters"


class SparkUi(Model):
    """Spark's own pages: jobs, stages, SQL plans, the streaming query. They have no login of their own."""

    host: str = Field("127.0.0.1", min_length=1, pattern=r"^[0-9A-Za-z.:_-]+$")
    """Address to listen on. Any other than this machine's own requires a filter with a login in spark.ui.filters."""
    port: int = Field(0, ge=0, le=65535, description="Port; 0 takes a free one.")

    @model_validator(mode="before")
    @classmethod
    def _switch(cls, data: Any) -> Any:
        return {} if data is True else data

    @property
    def is_local(self) -> bool:
        """Check that no other machine can reach it."""
        return is_loopback(self.host)

    def settings(self) -> dict[str, str]:
        """Return Spark's settings for it. Jobs cannot be killed there: it knows no roles."""
        return {"spark.ui.enabled": "true", "spark.ui.port": str(self.port), "spark.ui.killEnabled": "false"}

    def problem(self, spark: Mapping[str, object]) -> ConfigProblem | None:
        """Return why the block does not fit Spark's settings; None if it does."""
        if self.is_local or spark.get(FILTERS):
            return None
        what = f"spark_ui.host: {self.host} is reached from other machines, and Spark's pages have no login"
        filtered = f"spark: {{{FILTERS}: org.apache.spark.ui.JWSFilter, …}}"
        hint = f"127.0.0.1; or {filtered}, which {page_command('spark-ui')} explains"
        return ConfigProblem(what, hint=hint)
