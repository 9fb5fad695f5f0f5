"""The progress of a feed as one model: its driver, its batches, its lag, its health.

All views read this model: the terminal, ``lakefeed status``, ``top``, ``/metrics``, the driver's endpoint.
docs/metrics.md lists the keys of the model's JSON; the names and meanings of the keys do not change.
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
"""A driver hangs if its loop, which turns four times a second, has not turned for this time."""


class PartitionLag(JsonModel):
    """The position and the lag of a feed or group in one partition; unknown fields are None.

    Attributes:
        end: the offset after the topic's newest record.
        read: the offset after the last record that was read.
        committed: the offset after the last record that was committed.
        unread_seconds: the age of the oldest unread record; 0 if all are read.
        uncommitted_seconds: the age of the oldest uncommitted record; 0 if all are committed.
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
        """The number of unread offsets; compaction and transactions leave some offsets without a record."""
        return difference(self.end, self.committed if self.read is None else self.read)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def uncommitted(self) -> int | None:
        """The number of offsets that are read and not committed."""
        return None if self.read is None else difference(self.read, self.committed)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def lag(self) -> int | None:
        return difference(self.end, self.read if self.committed is None else self.committed)

    @property
    def seconds(self) -> float | None:
        """The age of the oldest uncommitted record."""
        return 0.0 if self.lag == 0 else self.uncommitted_seconds


def difference(end: int | None, start: int | None) -> int | None:
    """Return the number of offsets from ``start`` to ``end``, at least 0; None if one of them is unknown."""
    return None if end is None or start is None else max(0, end - start)


def total_lag(partitions: Iterable[PartitionLag]) -> int | None:
    """Return the sum of the partitions' lags; None if a lag is unknown, or if there are no partitions."""
    return _total([partition.lag for partition in partitions])


def _total(counts: list[int | None]) -> int | None:
    return None if not counts or None in counts else sum(count for count in counts if count is not None)


def oldest(partitions: Iterable[PartitionLag]) -> float | None:
    """Return the age of the oldest uncommitted record; None if it is unknown for a partition, or without partitions."""
    ages = [partition.seconds for partition in partitions]
    return None if None in ages else max((age for age in ages if age is not None), default=None)


class Driver(JsonModel):
    """The process that runs a feed.

    Attributes:
        started: the start time of the process in the operating system; it differs if another process gets the same id.
        spark_ui: the URL of Spark's UI; None if it is off.
    """

    host: str = ""
    pid: int = 0
    started: str | None = Field(None, exclude=True)
    version: str = ""
    spark_ui: str | None = None


class Failure(JsonModel):
    """The newest error of a feed, with a hint on the next step."""

    error: str = ""
    what: str = ""
    where: str | None = None
    hint: str | None = None
    at: Time = 0.0

    @classmethod
    def of(cls, error: BaseException, *, at: float) -> Failure:
        """Return an error's parts; only the class if it is not lakefeed's: its text may contain values of records."""
        name = type(error).__name__
        if isinstance(error, LakefeedError):
            return cls(error=name, what=error.what, where=error.where, hint=error.hint, at=at)
        return cls(error=name, what=name, at=at)

    @property
    def text(self) -> str:
        return f"{self.what} ({self.where})" if self.where else self.what


class RunTotals(JsonModel):
    """Sums over the batches of a run."""

    batches: int = 0
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    skipped: int = 0
    left_out: int = 0
    left_out_field: str | None = None
    requests: int = 0

    def plus(self, batch: FinishedBatch) -> RunTotals:
        return RunTotals(
            batches=self.batches + (not batch.replayed),
            records=self.records + batch.records,
            rows=self.rows + (batch.rows or 0),
            dead_letters=self.dead_letters + batch.dead_letters,
            skipped=self.skipped + batch.skipped,
            left_out=self.left_out + batch.left_out,
            left_out_field=self.left_out_field or batch.left_out_field,
            requests=self.requests + (batch.requests.total if batch.requests else 0),
        )


class FeedProgress(JsonModel):
    """One feed at one moment, as its driver reports it.

    Attributes:
        alive_at: the time when the driver's loop last turned.
        progress_at: the time when a batch last began or ended, or a task ended.
        fence: the driver's fence in the sink's ledger; None if the sink has no fences.
        rate: records per second over the last minute, pauses included; 0 if the feed is idle, None during the first
            batch or a long batch.
        partitions: the partitions' lags; the topics' ends are those when the last batch was planned.
        last_dead_letters: the reasons in the newest batch with dead letters.
        waits_for: in the state ``retrying``, the answer of the server that the feed waits for.
        failed_tables: in a run with many tables, by topic, the errors of tables that do not continue.
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
        return total_lag(self.partitions)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def unread(self) -> int | None:
        return _total([partition.unread for partition in self.partitions])

    @computed_field  # type: ignore[prop-decorator]
    @property
    def lag_seconds(self) -> Seconds | None:
        return oldest(self.partitions)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def hangs(self) -> bool:
        """Return whether the driver's loop has begun, and has not turned for a minute."""
        if self.state in ("ended", "failed") or self.alive_at == self.started_at:
            return False
        return self.taken_at - self.alive_at > HANGS_AFTER_SECONDS

    def health(self, *, no_commit_seconds: float | None = None) -> FeedHealth:
        """Return the feed's health; the feed has stalled if it has lag, but no commit for ``no_commit_seconds``."""
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
        """The time that records have waited for a commit; 0 without records, or while the feed is paused or over."""
        if self.paused is not None or self.state in ("ended", "failed") or not (self.lag or self.running):
            return 0.0
        since = self.taken_at - (self.last_commit_at or self.started_at)
        # Do not count from the last commit: after an idle night it is hours old, but a new record has not waited.
        waited = self.lag_seconds if self.lag else self.running.seconds if self.running else None
        return since if waited is None else min(since, waited)


class FeedHealth(JsonModel):
    """The health of a feed, for probes, metrics and alerts.

    Attributes:
        live: the driver's loop turns, and the run has not failed; if not, the process must be restarted.
        ready: the feed is live, has started, and has not ended.
        stalled: records have waited too long for a commit. True in a long batch, too: do not restart a driver for it.
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
        return self.live and not self.stalled
