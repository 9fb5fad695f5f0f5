"""The block ``upkeep`` of a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from lakefeed.config.base import ConfigProblem, Model, checked, spelled
from lakefeed.config.blocks import Block, PipelineBlocks
from lakefeed.config.values import Duration, Period, seconds_of

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


class Upkeep(Block):
    """Maintenance of the feed's table and its dead-letter table in the feed's job, while the feed runs."""

    only_for_runs: ClassVar[bool] = False

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

    def problems(self, config: PipelineBlocks) -> Iterator[ConfigProblem]:
        if not config.iceberg_tables():
            what = "upkeep maintains Iceberg tables, and this pipeline writes to none"
            yield ConfigProblem(what, hint="remove upkeep")

    @property
    def shares_the_session(self) -> bool:
        return True

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that ``only`` allows, in the order of running."""
        return tuple(step for step in STEPS if self.only is None or step in self.only)
