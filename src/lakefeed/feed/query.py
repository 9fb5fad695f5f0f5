"""Watches a running streaming query: reports its batches, stops it between two batches, translates its errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark.errors import translated
from lakefeed.config.triggers import AVAILABLE_NOW
from lakefeed.errors import LakefeedError
from lakefeed.feed.batch_writer import BatchResult
from lakefeed.feed.progress.progress import BatchProgress, ProgressReports
from lakefeed.feed.progress.requests import FeedRequests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 0.25


def trigger_of(trigger: str) -> dict[str, Any]:
    """Return the arguments of ``DataStreamWriter.trigger`` for a trigger of the pipeline file."""
    return {"availableNow": True} if trigger == AVAILABLE_NOW else {"processingTime": trigger}


class StopRequested(Exception):
    """Ends a query between two batches; nothing of the next one has been written."""


class MicroBatches:
    """The results of one run's micro-batches, and the request to stop between two of them.

    ``sent`` counts rows that Spark's own sinks have written; the others tell ``landed``.

    Spark's own ``stop()`` cuts the batch at hand and leaves its files behind as orphans; hence ``guarded``.
    """

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.landed: list[BatchResult] = []
        self.finished = 0
        self.records = 0
        self.sent = 0
        self.over_budget = 0
        self.failure: LakefeedError | None = None

    def guarded(self, land: Callable[[DataFrame, int], BatchResult]) -> Callable[[DataFrame, int], None]:
        """Return the ``foreachBatch`` function: it begins no batch after a stop, and keeps results and errors."""

        def each(batch: DataFrame, batch_id: int) -> None:
            if self.stop.is_set():
                raise StopRequested
            try:
                self.landed.append(land(batch, batch_id))
            except LakefeedError as error:
                self.failure = error
                raise
            except Exception as error:
                self.failure = translated(error)
                raise

        return each

    def of_batch(self, batch_id: int) -> BatchResult | None:
        """Return the result of a batch; None if it is unknown."""
        return next((each for each in reversed(self.landed) if each.batch_id == batch_id), None)


def watch(
    query: StreamingQuery,
    batches: MicroBatches,
    *,
    on_batch: Callable[[BatchProgress], None],
    requests: FeedRequests | None = None,
    request_budget: int | None = None,
) -> float:
    """Wait for the end of a query, report its batches, and stop it on request.

    Args:
        query: the query.
        batches: what its batches do; counted here.
        on_batch: called after each batch.
        requests: counts the requests of each batch to S3.
        request_budget: how many requests a batch should make at most.

    Returns:
        How many seconds the query ran.

    Raises:
        LakefeedError: the query failed; the error says why.
    """
    from pyspark.errors import StreamingQueryException

    reports = ProgressReports(query)
    began = time.monotonic()
    waits = True

    def report() -> bool:
        finished = False
        for each in reports.new():
            finished = True
            batch_id = int(each["batchId"])
            progress = BatchProgress.of(
                each,
                landed=batches.of_batch(batch_id),
                requests=requests.of_batch(batch_id) if requests else None,
                request_budget=request_budget,
            )
            batches.finished += 1
            batches.over_budget += progress.over_budget
            batches.records += progress.records
            batches.sent += max(0, int(each.get("sink", {}).get("numOutputRows", 0)))
            on_batch(progress)
        return finished

    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(POLL_SECONDS))  # type: ignore[arg-type]
            batch_finished = report()
            if batches.stop.is_set() and not ended and (batch_finished or _idle(query)):
                query.stop()
                ended = True
    except StreamingQueryException as error:
        report()
        if not (batches.stop.is_set() and batches.failure is None):
            raise (batches.failure or translated(error)) from error
    except KeyboardInterrupt:
        # The second one: who asks twice does not want to wait for the batch, as query.stop() does.
        waits = not batches.stop.is_set()
        raise
    finally:
        if waits and query.isActive:
            query.stop()
    return time.monotonic() - began


def _idle(query: StreamingQuery) -> bool:
    return not query.status["isTriggerActive"]
