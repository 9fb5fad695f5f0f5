"""One run of a feed: its options, its summary, and ``watch``, the loop that every kind of streaming query shares."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakefeed.clients.spark.errors import translate
from lakefeed.config.values import AVAILABLE_NOW
from lakefeed.errors import LakefeedError
from lakefeed.feed.batch_writer import BatchResult
from lakefeed.feed.observer import QueryObserver, RunObserver
from lakefeed.feed.progress import FinishedBatch, batch_of, new_reports
from lakefeed.feed.s3_requests import FeedRequests, S3Requests
from lakefeed.lazy import DataFrame, StreamingQuery, spark_errors
from lakefeed.ledger.outcomes import ZERO, Counts
from lakefeed.messages.printable import ReadableResult, counted

POLL_SECONDS = 0.25
POLL_TURNS = 20
"""After so many turns of its loop, ``watch`` reads ``recentProgress``, because the listener may have lost a report."""
KEPT_RESULTS = 100
"""The maximum number of batch results in memory: a run may have millions of batches."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of one run of a pipeline: see ``Pipeline.run``.

    ``on_note`` logs a message as an event and prints it. ``say`` only prints: its message is already an event.
    """

    once: bool
    stop: threading.Event
    on_batch: Callable[[FinishedBatch], None]
    on_note: Callable[[str], None]
    accept_loss: bool
    monitor: RunObserver
    resume: bool = False
    say: Callable[[str], None] = lambda message: None


@dataclass(frozen=True, kw_only=True)
class TableSummary:
    """The result of one run for one topic's table; ``failure`` is the error that has paused or stopped the table."""

    topic: str
    table: str
    batches: int
    counts: Counts
    rows: int
    failure: str | None


@dataclass(frozen=True, kw_only=True, repr=False)
class RunSummary(ReadableResult):
    """The result of one run of a pipeline.

    Attributes:
        batches: the number of committed micro-batches, without batches that the sink already had.
        rows: the number of rows that the sink has written; for merges, inserted, changed and deleted rows.
        skipped: the number of records that the pipeline skips.
        files: the number of data files written; None if the sink does not report it.
        seconds: the time from the start of the query to its end.
        s3_requests: all S3 requests of driver and executors in these ``seconds`` by operation, including requests of
            other queries.
        requests: this feed's own S3 requests, by operation and key class.
        startup_requests: this feed's S3 requests before the first batch.
        batch_requests: the S3 requests of batches, as status, dashboard and metrics count them; None if not counted.
        tables: the results by topic, if every topic has its own table.
        paused: the sinks that are paused after a failure, with the failures.
        repeated: the number of rows of a batch that the last run began; an at-least-once sink may have these rows
            twice.
    """

    batches: int
    records: int
    rows: int
    dead_letters: int = 0
    skipped: int = 0
    files: int | None = None
    seconds: float
    s3_requests: Mapping[str, int]
    requests: S3Requests
    startup_requests: S3Requests = field(default_factory=S3Requests)
    batch_requests: int | None = None
    batches_over_budget: int = 0
    tables: tuple[TableSummary, ...] = ()
    paused: Mapping[str, str] = field(default_factory=dict)
    repeated: int = 0

    @property
    def headline(self) -> str:
        failed = sum(table.failure is not None for table in self.tables)
        return ", ".join(
            (
                counted(self.batches, "batch", "batches"),
                counted(self.records, "record"),
                f"{counted(self.rows, 'row')} in {self.seconds:.1f} s",
                *([f"{counted(self.dead_letters, 'dead letter')}"] if self.dead_letters else []),
                *([f"{failed} of {counted(len(self.tables), 'table')} failed"] if failed else []),
            )
        )

    @property
    def requests_text(self) -> str:
        """The number of all S3 requests, and that of the batches; the difference is from start, upkeep and end."""
        in_batches = "" if self.batch_requests is None else f" ({self.batch_requests:,} of the batches)"
        return f"{sum(self.s3_requests.values()):,}{in_batches}"

    @property
    def figures(self) -> dict[str, str]:
        figures = {
            "batches": f"{self.batches:,}",
            "records": f"{self.records:,}",
            "rows": f"{self.rows:,} ({self.rows_per_second:,.0f}/s)",
            "dead letters": f"{self.dead_letters:,}",
            "skipped": f"{self.skipped:,}",
            "S3 requests": self.requests_text,
        }
        figures |= {f"paused: {name}": why for name, why in self.paused.items()}
        return figures | {table.topic: table.failure for table in self.tables if table.failure}

    @property
    def rows_per_second(self) -> float:
        """The rate over the whole run, including its start."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "requests": self.requests.as_dict(),
            "startup_requests": self.startup_requests.as_dict(),
            "rows_per_second": round(self.rows_per_second),
        }


def nothing_written(requests: S3Requests) -> RunSummary:
    """Return the summary of a run that was stopped before its first batch."""
    return RunSummary(batches=0, records=0, rows=0, seconds=0.0, s3_requests=requests.by_operation, requests=requests)


class StopRequested(Exception):
    """Ends a query before its next batch writes anything, or a run that waits to start."""


@dataclass
class Written:
    """The sums over the batches that a run has written, without batches that the sink already had."""

    first: BatchResult | None = None
    batches: int = 0
    rows: int = 0
    counts: Counts = ZERO
    batch_ids: list[range] = field(default_factory=list)

    def add(self, result: BatchResult) -> None:
        if result.replayed:
            return
        self.first = self.first or result
        self.batches += 1
        self.rows += result.rows
        self.counts += result.counts
        batch_id = result.batch_id
        if self.batch_ids and self.batch_ids[-1].stop == batch_id:
            self.batch_ids[-1] = range(self.batch_ids[-1].start, batch_id + 1)
        else:
            self.batch_ids.append(range(batch_id, batch_id + 1))


class MicroBatches:
    """The results of one run's micro-batches, and the request to end the query between two batches.

    Spark's own ``stop()`` would interrupt the current batch and leave its files as orphans. ``guarded`` avoids that.

    Attributes:
        stop: an event that ends the run.
        interrupts: returns whether the query has to end while the run continues, for example for a pause.
        landed: the newest results of batches that lakefeed has written; ``written`` has the sums over all of them.
        finished: the number of batches that Spark has reported; ``records`` and ``over_budget`` count these batches.
        sent: the number of rows that one of Spark's own sinks has written.
        is_writing: whether lakefeed is writing a batch; a stop waits until the batch is written.
    """

    def __init__(self, stop: threading.Event, *, interrupts: Callable[[], bool] = lambda: False) -> None:
        self.stop, self.interrupts = stop, interrupts
        self.landed: deque[BatchResult] = deque(maxlen=KEPT_RESULTS)
        self.written = Written()
        self.finished = 0
        self.records = 0
        self.sent = 0
        self.over_budget = 0
        self.failure: LakefeedError | None = None
        self.is_writing = False

    @property
    def end(self) -> bool:
        """Return whether the query has to end before its next batch."""
        return self.stop.is_set() or self.interrupts()

    def start(
        self,
        frame: DataFrame,
        write: Callable[[DataFrame, int], BatchResult],
        *,
        name: str,
        checkpoint: str,
        trigger: str,
        output_mode: str | None = None,
    ) -> StreamingQuery:
        """Start a query that passes the batches of this frame to ``write``.

        ``trigger`` has the form of the pipeline file; ``output_mode`` is set only for a query with state.
        """
        stream = frame.writeStream.foreachBatch(self.guarded(write)).queryName(name)
        if output_mode is not None:
            stream = stream.outputMode(output_mode)
        stream = stream.option("checkpointLocation", checkpoint)
        if trigger == AVAILABLE_NOW:
            return stream.trigger(availableNow=True).start()
        return stream.trigger(processingTime=trigger).start()

    def guarded(self, write: Callable[[DataFrame, int], BatchResult]) -> Callable[[DataFrame, int], None]:
        """Return a function for ``foreachBatch`` that writes no batch after a stop, and stores results and errors."""

        def write_guarded(batch: DataFrame, batch_id: int) -> None:
            self.is_writing = True
            try:
                if self.end:
                    raise StopRequested
                result = write(batch, batch_id)
                self.landed.append(result)
                self.written.add(result)
            except StopRequested:
                raise
            except Exception as error:
                self.failure = translate(error)
                raise
            finally:
                self.is_writing = False

        return write_guarded

    def of_batch(self, batch_id: int) -> BatchResult | None:
        return next((result for result in reversed(self.landed) if result.batch_id == batch_id), None)


def watch(
    query: StreamingQuery,
    batches: MicroBatches,
    *,
    on_batch: Callable[[FinishedBatch], None],
    requests: FeedRequests | None = None,
    request_budget: int | None = None,
    observer: QueryObserver | None = None,
    on_turn: Callable[[], None] = lambda: None,
) -> bool:
    """Wait for a query's end, report its batches, and stop it on request; return whether the query ended by itself.

    Args:
        batches: receives the results, and decides when the query has to end.
        requests: counts the batches' S3 requests; a batch should make at most ``request_budget``.
        observer: receives Spark's reports immediately, and records the feed's progress.
        on_turn: called several times a second, also during a batch.

    Raises:
        LakefeedError: the query has failed.
    """
    newest, turns, waits = -1, 0, True

    def report(*, is_end: bool = False) -> bool:
        """Report the batches that have finished since the last call; return whether there are any."""
        nonlocal newest
        before = newest
        reports = None
        if observer is not None and observer.hears and not is_end and turns % POLL_TURNS:
            reports = list(observer.reports(before))
            ids = [int(finished["batchId"]) for finished in reports]
            if ids != list(range(before + 1, before + 1 + len(ids))):
                # The ids have a gap: the query has resumed at a later batch, or Spark has dropped reports of a slow
                # listener.
                reports = None
        if reports is None:
            reports = list(new_reports(query, after=before))
        for finished in reports:
            newest = int(finished["batchId"])
            result = batches.of_batch(newest)
            made = requests.of_batch(newest) if requests else None
            batch = batch_of(finished, result, requests=made, request_budget=request_budget)
            batches.finished += 1
            batches.over_budget += batch.over_budget
            batches.records += batch.records
            batches.sent += max(0, int(finished.get("sink", {}).get("numOutputRows", 0)))
            if observer is not None:
                batch = observer.finish(finished, batch, is_ours=result is not None)
            on_batch(batch)
        return newest > before

    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(POLL_SECONDS))  # type: ignore[arg-type]
            turns += 1
            on_turn()
            batch_finished = report(is_end=ended)
            if observer is not None:
                if turns % POLL_TURNS == 0:
                    observer.observe_idle(query)
                observer.monitor.tick(stops=batches.stop.is_set())
            stops = batches.end and not ended and not batches.is_writing
            # Spark logs a batch as done and then reports it. Stop only after the report, or the next query repeats the
            # batch.
            is_logged = not batches.landed or batches.landed[-1].batch_id <= newest
            if stops and ((batch_finished and is_logged) or not query.status["isTriggerActive"]):
                query.stop()
                # Spark's last report may have arrived after the last turn.
                report(is_end=True)
                if batches.failure is not None:
                    # The query failed while it was being stopped. After stop(), Spark no longer raises that error.
                    raise batches.failure
                return False
        return True
    except spark_errors.StreamingQueryException as error:
        report(is_end=True)
        if not (batches.end and batches.failure is None):
            raise (batches.failure or translate(error)) from error
        return False
    except KeyboardInterrupt:
        # After a second Ctrl-C, do not call query.stop(), because it would wait for the batch.
        waits = not batches.stop.is_set()
        raise
    finally:
        if waits and query.isActive:
            query.stop()
