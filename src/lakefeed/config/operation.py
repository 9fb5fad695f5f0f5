"""The blocks of a pipeline file for operation: upkeep of tables, metrics and Spark's pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from lakefeed.config.addresses import is_loopback
from lakefeed.config.base import ConfigProblem, Model, checked, spelled
from lakefeed.config.values import Duration, Period, seconds_of, trigger_seconds
from lakefeed.messages.pages import page_command

Step = Literal["compact", "manifests", "expire", "orphans"]
STEPS: tuple[Step, ...] = get_args(Step)
DAY = 86_400


def _require_a_day(text: str) -> None:
    if seconds_of(text) < DAY:
        raise ValueError("at least 1 day is required: a younger file may belong to a batch that is not committed yet")


class Compact(Model):
    """Rewrites small files as large ones. It begins with the partitions that the feed no longer writes to."""

    min_files: int = Field(5, ge=2, le=2**31 - 1)
    """Rewrite a partition if it has at least this many small files. A file is small if it has less than 3/4 of the
    target size."""
    target_mb: int | None = Field(None, ge=1, le=2**31 - 1)
    """The size of the new files in MB. Default: the table's write.target-file-size-bytes."""
    group_mb: int = Field(1024, ge=1, le=2**31 - 1)
    """How many MB one rewrite reads, writes and commits. This bounds the memory, and the time until a stop."""


class Manifests(Model):
    """Rewrites many small manifests as few, sorted by partition, and rewrites files of position deletes."""

    more_than: int = Field(30, ge=1, le=2**31 - 1, description="Manifests are rewritten if there are more than this.")
    delete_files: int = Field(10, ge=2, le=2**31 - 1)
    """Files of position deletes are rewritten if there are at least this many."""


class Expire(Model):
    """Removes old snapshots, and the files that only they need. The newest commit of each feed stays."""

    older_than: Duration = "7 days"
    """The least age of snapshots to remove. Time travel, verify and rollbacks need the younger ones."""
    keep: int = Field(100, ge=10, le=2**31 - 1)
    """The number of newest snapshots that stay at any age. With fewer than 10, the base of a running commit could be
    removed."""


class Orphans(Model):
    """Removes files that no snapshot refers to. Interrupted writes and commits leave such files."""

    older_than: Annotated[Duration, checked(_require_a_day)] = "3 days"
    """The least age of files to remove, 1 day or more: younger files may belong to a running commit."""
    every: Period = Field("1 day", description="Time between two searches; a search lists all files of the table.")


class Upkeep(Model):
    """Maintenance of the feed's table and its dead-letter table in the feed's job, while the feed runs."""

    every: Period | None = Field(None, description="Time between two maintenances. Default: 1 hour.")
    at: Annotated[str, spelled(r"([01]\d|2[0-3]):[0-5]\d", "a time of day is HH:MM, in UTC")] | None = None
    """Instead of every: the time of day for one maintenance a day, HH:MM in UTC."""
    max_minutes: float = Field(10, gt=0, le=10_080)
    """After this time a maintenance starts no further rewrite or removal; the next maintenance resumes."""
    only: list[Step] | None = Field(None, min_length=1, description="Run only these steps. Default: all.")
    compact: Compact = Field(default_factory=Compact)
    manifests: Manifests = Field(default_factory=Manifests)
    expire: Expire = Field(default_factory=Expire)
    orphans: Orphans = Field(default_factory=Orphans)

    def _contradictions(self) -> Iterator[str]:
        if self.every is not None and self.at is not None:
            yield "give either every or at"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that ``only`` allows, in the order of running."""
        return tuple(step for step in STEPS if self.only is None or step in self.only)


NO_COMMIT_SECONDS = 900
"""The default of ``no_commit_for`` in seconds, or three times the trigger if that is longer."""


class Metrics(Model):
    """Metrics and health of the feed, at /metrics and /health and in Spark's metrics sinks."""

    partitions: int = Field(200, ge=0, le=100_000)
    """The most partitions with their own metric series. Sums and maxima always cover all partitions."""
    no_commit_for: Period | None = None
    """/health fails if unread records wait and the feed has not committed for this time. Default: 15 minutes, or three
    times the trigger if that is longer."""

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
