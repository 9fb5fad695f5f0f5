"""The progress of a feed as values: a finished batch, the batch at work, and the feed with its driver.

Every view reads these: lines and panel in the terminal, ``lakefeed status``, the driver's endpoint. ``as_dict`` is
their JSON; docs/monitor-documents.md lists the keys, which keep their names and their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from lakefeed.monitor.lag import PartitionLag, longest, per_second, rounded, seconds_left, total
from lakefeed.monitor.text import one_line
from lakefeed.offsets.ranges import OffsetRange

State = Literal["starting", "waiting", "working", "retrying", "paused", "stopping", "ended", "failed"]

HANGS_AFTER_SECONDS = 60.0
"""A driver whose loop has not turned for so long hangs: it turns four times a second."""


@dataclass(frozen=True)
class TaskCounts:
    """The tasks of the running batch: done, known, the records that they have read, and a server that they wait for."""

    done: int
    total: int
    records: int
    waits_for: str | None = None


@dataclass(frozen=True)
class DeadLetterReason:
    """A kind of dead letter: the error without its numbers, how many there are, and one error in full."""

    text: str
    count: int
    sample: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {"reason": self.text, "count": self.count, "sample": self.sample}


@dataclass(frozen=True, kw_only=True)
class BatchRequests:
    """Requests to S3 of one batch, as the meter in the driver has counted them.

    Attributes:
        data_files: data files that were written.
        writes: PUT, COPY, POST and LIST, which stores charge together; ``reads`` GET, HEAD and others; deletions are in
            neither, since they are free.
        by_class: requests by class of keys: data, metadata, offsets, commits, state and so on.
    """

    total: int
    errors: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    data_files: int = 0
    writes: int = 0
    reads: int = 0
    by_class: Mapping[str, int] = field(default_factory=dict)
    budget: int | None = None

    @property
    def over_budget(self) -> bool:
        return self.budget is not None and self.total > self.budget

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class QueryState:
    """The state and the watermark of a query; all None for a query without state.

    Attributes:
        watermark: event time in ISO 8601 up to which the query takes no more records.
        rows: keys in the state stores, ``bytes`` the memory that they use.
        late_rows: rows that came after the watermark, and were dropped by this batch.
    """

    watermark: str | None = None
    rows: int | None = None
    bytes: int | None = None
    late_rows: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class FinishedBatch:
    """One finished micro-batch.

    Attributes:
        finished_at: seconds since 1970.
        seconds: from its trigger to its end; ``phases`` are parts of that, in seconds: see ``lakefeed.monitor.report``.
        records: read from the source; ``rows`` written, None where the sink does not say.
        offsets: how many offsets it has advanced by, with those that hold no record; None if unknown.
        input_rate: records a second since the trigger before; None if unknown.
        lag: offsets that were in the topics, and that no batch had read, when it was planned; None if unknown.
        left_out: rows whose records have JSON fields that no column takes.
        replayed: the sink had it already, from before a restart.
        schema_id: the newest writers' schema that the rows cover; None for formats without ids.
    """

    batch_id: int
    finished_at: float
    seconds: float
    records: int
    rows: int | None = None
    offsets: int | None = None
    input_rate: float | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    dead_letters: int = 0
    skipped: int = 0
    left_out: int = 0
    reasons: tuple[DeadLetterReason, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    requests: BatchRequests | None = None
    state: QueryState = field(default_factory=QueryState)
    schema_id: int | None = None
    replayed: bool = False
    ranges: tuple[OffsetRange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def processing_rate(self) -> float:
        """Records a second while the batch ran."""
        return per_second(self.records, self.seconds)

    @property
    def output_rate(self) -> float | None:
        """Rows a second; None where the sink does not say."""
        return None if self.rows is None else per_second(self.rows, self.seconds)

    @property
    def seconds_left(self) -> float | None:
        """How long the lag takes at this rate, in offsets as the lag; None if that is unknown."""
        return seconds_left(self.lag, self.records if self.offsets is None else self.offsets, self.seconds)

    def as_dict(self) -> dict[str, Any]:
        """Return the batch for JSON."""
        return {
            "batch": self.batch_id,
            "finished_at": iso(self.finished_at),
            "seconds": rounded(self.seconds),
            "records": self.records,
            "rows": self.rows,
            "offsets": self.offsets,
            "input_rate": rounded(self.input_rate),
            "processing_rate": rounded(self.processing_rate),
            "lag": self.lag,
            "lag_seconds": rounded(self.lag_seconds),
            "dead_letters": self.dead_letters,
            "skipped": self.skipped,
            "left_out": self.left_out,
            "reasons": [reason.as_dict() for reason in self.reasons],
            "phases": {name: rounded(seconds) for name, seconds in self.phases.items()},
            "requests": self.requests.as_dict() if self.requests else None,
            "state": self.state.as_dict(),
            "schema_id": self.schema_id,
            "replayed": self.replayed,
            "ranges": ranges_dict(self.ranges),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class RunningBatch:
    """The batch that a feed is at.

    Attributes:
        offsets: how many the batch reads; None if unknown.
        records: read so far by the tasks that Spark has heard of; None until it has.
        tasks_done: of the ``tasks`` that are known now; a later stage adds to them.
        phase: see ``FinishedBatch.phases``.
    """

    batch_id: int
    began_at: float
    offsets: int | None = None
    records: int | None = None
    tasks_done: int = 0
    tasks: int = 0
    phase: str | None = None

    def seconds(self, now: float) -> float:
        return max(0.0, now - self.began_at)

    def rate(self, now: float) -> float | None:
        """Return the records a second so far."""
        seconds = self.seconds(now)
        return self.records / seconds if self.records and seconds > 0 else None

    def seconds_left(self, now: float) -> float | None:
        """Return how long the rest takes at the rate so far: by records, else by tasks; None if neither says."""
        done, all_ = self.records or 0, self.offsets or 0
        if not 0 < done <= all_:
            done, all_ = self.tasks_done, self.tasks
        if not 0 < done <= all_:
            return None
        return self.seconds(now) * (all_ - done) / done

    def as_dict(self, now: float) -> dict[str, Any]:
        return {
            "batch": self.batch_id,
            "began_at": iso(self.began_at),
            "seconds": rounded(self.seconds(now)),
            "offsets": self.offsets,
            "records": self.records,
            "rate": rounded(self.rate(now)),
            "tasks_done": self.tasks_done,
            "tasks": self.tasks,
            "phase": self.phase,
            "seconds_left": rounded(self.seconds_left(now)),
        }


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The process that runs a feed.

    Attributes:
        started: the operating system's mark of the process's start, which another process of this id does not have.
        spark_ui: the URL of Spark's own pages; None where they are off.
    """

    host: str
    pid: int
    started: str | None = None
    version: str = ""
    spark_ui: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {"host": self.host, "pid": self.pid, "version": self.version, "spark_ui": self.spark_ui}


@dataclass(frozen=True)
class Pause:
    """A feed's pause: who asked for it, when, and why."""

    reason: str
    by: str
    at: float

    @property
    def text(self) -> str:
        """The pause in one line: by whom, since when, and why."""
        why = f": {self.reason}" if self.reason else ", without a reason"
        return one_line(f"paused by {self.by} since {iso(self.at)}{why}", most=2000)

    def as_dict(self) -> dict[str, Any]:
        return {"reason": self.reason, "by": self.by, "at": iso(self.at)}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The newest error of a feed, with what to do next."""

    error: str
    what: str
    where: str | None
    hint: str | None
    at: float

    @property
    def text(self) -> str:
        """The error in one sentence, and where it is."""
        return self.what if self.where is None else f"{self.what} ({self.where})"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "at": iso(self.at)}


@dataclass(frozen=True, kw_only=True)
class RunTotals:
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

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class FeedProgress:
    """One feed at one moment, as its driver knows it.

    Attributes:
        taken_at: the moment, in seconds since 1970, as all times here.
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
    taken_at: float
    started_at: float
    alive_at: float
    progress_at: float
    fence: str | None = None
    restarts: int = 0
    last_commit_at: float | None = None
    last_error: Failure | None = None
    last_batch: FinishedBatch | None = None
    running: RunningBatch | None = None
    rate: float | None = None
    partitions: tuple[PartitionLag, ...] = ()
    last_dead_letters: tuple[DeadLetterReason, ...] = ()
    paused: Pause | None = None
    waits_for: str | None = None
    paused_sinks: Mapping[str, str] = field(default_factory=dict)
    failed_tables: Mapping[str, str] = field(default_factory=dict)
    totals: RunTotals = field(default_factory=RunTotals)

    @property
    def lag(self) -> int | None:
        """Offsets in the topics that are not committed; None if a partition's is unknown, or there are no topics."""
        return total(partition.lag for partition in self.partitions) if self.partitions else None

    @property
    def unread(self) -> int | None:
        return total(partition.unread for partition in self.partitions) if self.partitions else None

    @property
    def lag_seconds(self) -> float | None:
        """The age of the oldest record that is not committed."""
        return longest(partition.seconds for partition in self.partitions)

    @property
    def hangs(self) -> bool:
        """Check that the driver's loop, once it has begun, has not turned for a minute."""
        if self.state in ("ended", "failed") or self.alive_at == self.started_at:
            return False
        return self.taken_at - self.alive_at > HANGS_AFTER_SECONDS

    def as_dict(self) -> dict[str, Any]:
        """Return the feed for JSON."""
        return {
            "feed": self.feed,
            "sink": self.sink,
            "state": self.state,
            "hangs": self.hangs,
            "driver": self.driver.as_dict(),
            "taken_at": iso(self.taken_at),
            "started_at": iso(self.started_at),
            "alive_at": iso(self.alive_at),
            "progress_at": iso(self.progress_at),
            "fence": self.fence,
            "restarts": self.restarts,
            "last_commit_at": iso(self.last_commit_at),
            "last_error": self.last_error.as_dict() if self.last_error else None,
            "lag": self.lag,
            "unread": self.unread,
            "lag_seconds": rounded(self.lag_seconds),
            "rate": rounded(self.rate),
            "last_batch": self.last_batch.as_dict() if self.last_batch else None,
            "running": self.running.as_dict(self.taken_at) if self.running else None,
            "partitions": [partition.as_dict() for partition in self.partitions],
            "last_dead_letters": [reason.as_dict() for reason in self.last_dead_letters],
            "paused": self.paused.as_dict() if self.paused else None,
            "waits_for": self.waits_for,
            "paused_sinks": dict(self.paused_sinks),
            "failed_tables": dict(self.failed_tables),
            "totals": self.totals.as_dict(),
        }


def iso(seconds: float | None) -> str | None:
    """Format seconds since 1970 as UTC in ISO 8601, to the millisecond."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ranges_dict(ranges: tuple[OffsetRange, ...]) -> dict[str, dict[str, list[int]]]:
    """Return offset ranges as ``{"topic": {"0": [start, end]}}``; the end is not included."""
    found: dict[str, dict[str, list[int]]] = {}
    for span in ranges:
        found.setdefault(span.topic, {})[str(span.partition)] = [span.start, span.end]
    return found
