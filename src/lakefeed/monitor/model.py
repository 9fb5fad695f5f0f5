"""The progress of a feed as one model: its driver, its batches, its lag, its health.

Every view reads it: lines and panel in the terminal, ``lakefeed status``, ``top``, ``/metrics``, the driver's endpoint.
docs/metrics.md lists the keys of its JSON, which keep their names and their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, computed_field

from lakefeed.errors import LakefeedError
from lakefeed.feed.progress import FinishedBatch, RunningBatch
from lakefeed.json_model import JsonModel, Seconds, Time
from lakefeed.ledger.outcomes import Reason
from lakefeed.ledger.pauses import Pause

State = Literal["starting", "waiting", "working", "retrying", "paused", "stopping", "ended", "failed"]

HANGS_AFTER_SECONDS = 60.0
"""A driver whose loop has not turned for so long hangs: it turns four times a second."""


class PartitionLag(JsonModel):
    """The position of a reader in one partition, and its lag: not read yet, and read but not committed.

    Attributes:
        end: one more than the newest offset in the topic; None, as all others, for what is not known.
        read: one more than the last offset that was read.
        committed: one more than the last offset that the sink, or the group, has committed.
        unread_seconds: the age of the oldest record that was not read; 0 if there is none.
        uncommitted_seconds: the age of the oldest record that was not committed; 0 if there is none.
    """

    topic: str
    partition: int
    end: int | None = None
    read: int | None = None
    committed: int | None = None
    unread_seconds: Seconds | None = None
    uncommitted_seconds: Seconds | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def unread(self) -> int | None:
        """Offsets that were not read yet; compaction and transactions leave some without a record."""
        return difference(self.end, self.committed if self.read is None else self.read)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def uncommitted(self) -> int | None:
        """Offsets that were read and are not committed."""
        return None if self.read is None else difference(self.read, self.committed)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def lag(self) -> int | None:
        """Offsets that are not committed, read or not."""
        return difference(self.end, self.read if self.committed is None else self.committed)

    @property
    def seconds(self) -> float | None:
        """The age of the oldest record that is not committed."""
        return 0.0 if self.lag == 0 else self.uncommitted_seconds


def difference(end: int | None, start: int | None) -> int | None:
    """Count the offsets from one position to a later one; 0 if the later one is behind, None if one is unknown."""
    return None if end is None or start is None else max(0, end - start)


def total_lag(partitions: Iterable[PartitionLag]) -> int | None:
    """Add up the lag of partitions; None if one is unknown, or if there are none."""
    lags = [partition.lag for partition in partitions]
    return None if not lags or None in lags else sum(lag for lag in lags if lag is not None)


def oldest(partitions: Iterable[PartitionLag]) -> float | None:
    """Return the age of the oldest record; None if one of them is unknown, which may be older, or if there are none."""
    ages = [partition.seconds for partition in partitions]
    return None if None in ages else max((age for age in ages if age is not None), default=None)


class Driver(JsonModel):
    """The process that runs a feed.

    Attributes:
        started: the operating system's mark of the process's start, which another process of this id does not have.
        spark_ui: the URL of Spark's own pages; None where they are off.
    """

    host: str = ""
    pid: int = 0
    started: str | None = Field(None, exclude=True)
    version: str = ""
    spark_ui: str | None = None


class Failure(JsonModel):
    """The newest error of a feed, with what to do next."""

    error: str = ""
    what: str = ""
    where: str | None = None
    hint: str | None = None
    at: Time = 0.0

    @classmethod
    def of(cls, error: BaseException, *, at: float) -> Failure:
        """Return an error's parts; of another than lakefeed's the class alone: its text may have values of records."""
        name = type(error).__name__
        if isinstance(error, LakefeedError):
            return cls(error=name, what=error.what, where=error.where, hint=error.hint, at=at)
        return cls(error=name, what=name, at=at)

    @property
    def text(self) -> str:
        """The error in one sentence, and where it is."""
        return f"{self.what} ({self.where})" if self.where else self.what


class RunTotals(JsonModel):
    """Sums over the batches of a run, without those that the sink had already."""

    batches: int = 0
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    skipped: int = 0
    left_out: int = 0
    requests: int = 0

    def plus(self, batch: FinishedBatch) -> RunTotals:
        return RunTotals(
            batches=self.batches + (not batch.replayed),
            records=self.records + batch.records,
            rows=self.rows + (batch.rows or 0),
            dead_letters=self.dead_letters + batch.dead_letters,
            skipped=self.skipped + batch.skipped,
            left_out=self.left_out + batch.left_out,
            requests=self.requests + (batch.requests.total if batch.requests else 0),
        )


class FeedProgress(JsonModel):
    """One feed at one moment, as its driver knows it.

    Attributes:
        alive_at: when the driver's loop turned last; long ago if the driver hangs.
        progress_at: when a batch or a task ended last.
        partitions: the lag of each partition, as of the last batch that was planned.
        rate: records a second over the last minute, with the time between batches; 0 of an idle one, None while a first
            or long batch runs.
        last_dead_letters: reasons of the newest batch that had any.
        failed_tables: by topic, of a job with a table for each: the error of those that do not continue now.
        fence: the driver's, in the sink's ledger; None where the sink has no fences.
        paused: the pause that holds; None while there is none.
        waits_for: the answer of the server that the feed waits for, in the state ``retrying``.
    """

    feed: str
    sink: str
    state: State
    driver: Driver
    taken_at: Time
    started_at: Time
    alive_at: Time
    progress_at: Time
    fence: str | None = None
    restarts: int = 0
    last_commit_at: Time | None = None
    last_error: Failure | None = None
    last_batch: FinishedBatch | None = None
    running: RunningBatch | None = None
    rate: Seconds | None = None
    partitions: tuple[PartitionLag, ...] = ()
    last_dead_letters: tuple[Reason, ...] = ()
    paused: Pause | None = None
    waits_for: str | None = None
    paused_sinks: dict[str, str] = Field({})
    failed_tables: dict[str, str] = Field({})
    totals: RunTotals = RunTotals()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def lag(self) -> int | None:
        """Offsets in the topics that are not committed; None if a partition's is unknown, or there are no topics."""
        return total_lag(self.partitions)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def unread(self) -> int | None:
        found = [partition.unread for partition in self.partitions]
        return None if not found or None in found else sum(unread for unread in found if unread is not None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def lag_seconds(self) -> Seconds | None:
        """The age of the oldest record that is not committed."""
        return oldest(self.partitions)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def hangs(self) -> bool:
        """Check that the driver's loop, once it has begun, has not turned for a minute."""
        if self.state in ("ended", "failed") or self.alive_at == self.started_at:
            return False
        return self.taken_at - self.alive_at > HANGS_AFTER_SECONDS

    def health(self, *, no_commit_seconds: float | None = None) -> FeedHealth:
        """Return the feed's health.

        Args:
            no_commit_seconds: the feed has stalled after so long without a commit while records wait; None for never.
        """
        live = not self.hangs and self.state != "failed"
        return FeedHealth(
            live=live,
            ready=live and self.state not in ("starting", "ended"),
            stalled=no_commit_seconds is not None and self._seconds_stalled > no_commit_seconds,
            state=self.state,
            hangs=self.hangs,
            lag=self.lag,
            lag_seconds=self.lag_seconds,
            seconds_since_commit=None if self.last_commit_at is None else self.taken_at - self.last_commit_at,
            seconds_since_progress=self.taken_at - self.progress_at,
        )

    @property
    def _seconds_stalled(self) -> float:
        """For how long records have waited without a commit; 0 where none wait, or none should be written."""
        if self.paused is not None or self.state in ("ended", "failed") or not (self.lag or self.running):
            return 0.0
        since = self.taken_at - (self.last_commit_at or self.started_at)
        # After a quiet night the last commit is long ago, and the record that has just come has not waited yet.
        waited = self.lag_seconds if self.lag else self.running.seconds if self.running else None
        return since if waited is None else min(since, waited)


class FeedHealth(JsonModel):
    """The health of a feed, for probes, metrics and alerts alike.

    Attributes:
        live: its driver's loop turns, and the run has not failed; to start the process again helps if not.
        ready: it is live, and open: neither starting nor ended.
        stalled: records wait, and no commit has come for too long; a long batch is no reason to kill the driver.
    """

    live: bool
    ready: bool
    stalled: bool
    state: State
    hangs: bool
    lag: int | None
    lag_seconds: Seconds | None
    seconds_since_commit: Seconds | None
    seconds_since_progress: Seconds

    @property
    def is_well(self) -> bool:
        """Check that nothing is wrong."""
        return self.live and not self.stalled
