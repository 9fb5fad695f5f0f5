"""The block of a pipeline file that says how the metrics of a feed are counted."""

from __future__ import annotations

from pydantic import Field

from lakefeed.config.base import Model
from lakefeed.config.values import Period, seconds_of, trigger_seconds

NO_COMMIT_SECONDS = 900
"""The default of ``no_commit_for``; three times the trigger if that is longer."""


class Metrics(Model):
    """Metrics and health of the feed: /metrics, /health, Spark's sinks."""

    partitions: int = Field(200, ge=0, le=100_000)
    """So many partitions have series of their own; sum and maximum are over all."""
    no_commit_for: Period | None = None
    """/health fails when records wait and no commit came for so long. Default: 15 minutes, or three times the trigger
    if that is longer."""

    def no_commit_seconds(self, trigger: str) -> float:
        """Return ``no_commit_for``, or its default for a trigger."""
        if self.no_commit_for is not None:
            return seconds_of(self.no_commit_for)
        try:
            return max(NO_COMMIT_SECONDS, 3 * trigger_seconds(trigger))
        except ValueError:
            return NO_COMMIT_SECONDS
