"""The block of a pipeline file that says how its tables are kept in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from pydantic import Field

from lakefeed.config.base import Model, checked, spelled
from lakefeed.config.values import Duration, Period, seconds_of

Step = Literal["compact", "manifests", "expire", "orphans"]
STEPS: tuple[Step, ...] = get_args(Step)
DAY = 86_400


def _require_a_day(text: str) -> None:
    if seconds_of(text) < DAY:
        raise ValueError("younger than 1 day it can be the file of a batch that is not committed yet")


class Compact(Model):
    """Small files become large ones, partition by partition; those that the feed no longer writes to first."""

    min_files: int = Field(5, ge=2, le=2**31 - 1)
    """So many small files of a partition are worth a rewrite; small is below 3/4 of the target."""
    target_mb: int | None = Field(None, ge=1, le=2**31 - 1)
    """Size of the files to write. Default: the table's write.target-file-size-bytes."""
    group_mb: int = Field(1024, ge=1, le=2**31 - 1)
    """So much is read, written and committed at once: the bound on memory, and on a stop."""


class Manifests(Model):
    """Many small manifests become few, clustered by partition; position deletes too."""

    more_than: int = Field(30, ge=1, le=2**31 - 1, description="So many manifests are left alone.")
    delete_files: int = Field(10, ge=2, le=2**31 - 1)
    """So many files of position deletes are worth a rewrite."""


class Expire(Model):
    """Old snapshots go, and the files that only they need. The newest commit of each feed stays."""

    older_than: Duration = Field("7 days", description="Younger ones stay: for time travel, verify and rollbacks.")
    keep: int = Field(100, ge=10, le=2**31 - 1)
    """So many stay in any case; below 10 a commit at hand could miss what it builds on."""


class Orphans(Model):
    """Files below the table's data and metadata that no snapshot knows, left behind by what was cut off."""

    older_than: Annotated[Duration, checked(_require_a_day)] = "3 days"
    """Younger ones may belong to a commit at hand; 1 day at least."""
    every: Period = Field("1 day", description="How often they are looked for: each look lists the table's files.")


class Upkeep(Model):
    """Maintenance of the feed's table and its dead-letter table, inside the job, while it runs."""

    every: Period | None = Field(None, description="Time between two looks at the tables. Default: 1 hour.")
    at: Annotated[str, spelled(r"([01]\d|2[0-3]):[0-5]\d", "a time of day is HH:MM, in UTC")] | None = None
    """Or once a day at this time, HH:MM in UTC."""
    max_minutes: float = Field(
        10, gt=0, le=10_080, description="No new piece of work is begun after that; the next look resumes."
    )
    only: list[Step] | None = Field(None, min_length=1, description="These steps alone. Default: all.")
    compact: Compact = Field(default_factory=Compact)
    manifests: Manifests = Field(default_factory=Manifests)
    expire: Expire = Field(default_factory=Expire)
    orphans: Orphans = Field(default_factory=Orphans)

    def _contradictions(self) -> Iterator[str]:
        if self.every is not None and self.at is not None:
            yield "give either every or at"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that may run, in their order."""
        return tuple(step for step in STEPS if self.only is None or step in self.only)
