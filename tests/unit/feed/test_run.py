"""A run reports each batch once: from Spark's listener, or from Spark's list if the listener lost the event."""

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from lakefeed.errors import CheckpointMismatch
from lakefeed.feed.batch_writer import BatchResult
from lakefeed.feed.observer import QueryObserver
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.run import KEPT_RESULTS, MicroBatches, StopRequested, watch
from lakefeed.ledger.outcomes import ZERO, Counts
from lakefeed.monitor.feed_monitor import FeedMonitor


def report_of(number: int) -> dict[str, Any]:
    return {"batchId": number, "numInputRows": 10, "durationMs": {"addBatch": 5, "triggerExecution": 9}, "sources": []}


class Report(dict[str, Any]):
    @property
    def json(self) -> str:
        return json.dumps(self)


class Query:
    """A query that has run `batches` batches and ends after `turns` iterations of the driver's loop."""

    isActive = False  # noqa: N815
    status: Mapping[str, Any] = {"isTriggerActive": False}

    def __init__(self, batches: int, turns: int) -> None:
        self.recentProgress = [Report(report_of(number)) for number in range(batches)]
        self.turns = turns
        self.stopped_at: int | None = None

    @property
    def lastProgress(self) -> Report:  # noqa: N802
        return self.recentProgress[-1]

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
        self.turns -= 1
        return self.turns <= 0

    def stop(self) -> None:
        self.stopped_at = self.turns


class Observer:
    """An observer whose listener reports the batches in ``turns``, one item for each iteration of the loop."""

    hears = True

    def __init__(self, *turns: list[int]) -> None:
        self.monitor = FeedMonitor("taxi")
        self._turns = list(turns)
        self.finished: list[int] = []

    def reports(self, after: int) -> Iterator[Mapping[str, Any]]:
        numbers = self._turns.pop(0) if self._turns else []
        yield from (report_of(number) for number in numbers if number > after)

    def finish(self, report: Mapping[str, Any], batch: FinishedBatch, *, is_ours: bool) -> FinishedBatch:
        self.finished.append(batch.batch_id)
        return batch


def watched(query: Query, observer: Observer, batches: MicroBatches | None = None) -> list[int]:
    seen: list[int] = []
    watch(
        cast("Any", query),
        batches or MicroBatches(threading.Event()),
        on_batch=lambda progress: seen.append(progress.batch_id),
        observer=cast("QueryObserver", observer),
    )
    return seen


@pytest.mark.parametrize("turns", [([0], [1], [2], [3]), ([0, 1, 2, 3],), ([0], [2], [3]), ([3],), ([], [1]), ()])
def test_each_batch_is_reported_even_if_the_listener_loses_events(turns: tuple[list[int], ...]) -> None:
    observer = Observer(*turns)
    assert watched(Query(batches=4, turns=6), observer) == [0, 1, 2, 3] == observer.finished


def test_a_stop_waits_for_the_batch_in_progress() -> None:
    batches = MicroBatches(threading.Event())
    batches.stop.set()
    batches.is_writing = True
    query = Query(batches=1, turns=5)
    watched(query, Observer([0]), batches)
    assert query.stopped_at is None
    batches.is_writing = False
    watched(query := Query(batches=1, turns=5), Observer([0]), batches)
    assert query.stopped_at == 4


def test_a_batch_counts_as_written_when_its_batch_function_has_ended() -> None:
    batches = MicroBatches(threading.Event())

    def write(batch: object, batch_id: int) -> BatchResult:
        assert batches.is_writing
        if batch_id == 1:
            raise ValueError("no")
        return BatchResult(batch_id, rows=1, replayed=False)

    guarded = batches.guarded(cast("Any", write))
    guarded(cast("Any", None), 0)
    assert not batches.is_writing
    with pytest.raises(ValueError, match="no"):
        guarded(cast("Any", None), 1)
    assert not batches.is_writing
    batches.stop.set()
    with pytest.raises(StopRequested):
        guarded(cast("Any", None), 2)
    assert not batches.is_writing


def test_no_batch_begins_while_a_request_of_an_operator_waits() -> None:
    waits = [False]
    batches = MicroBatches(threading.Event(), interrupts=lambda: waits[0])
    guarded = batches.guarded(lambda batch, batch_id: BatchResult(batch_id, rows=1, replayed=False))
    guarded(cast("Any", None), 0)
    waits[0] = True
    with pytest.raises(StopRequested):
        guarded(cast("Any", None), 1)
    assert [result.batch_id for result in batches.landed] == [0]


def test_a_query_is_stopped_only_after_spark_has_logged_its_last_batch() -> None:
    """Batch 1 is written but not in Spark's log yet; a query that ended now would later repeat it."""
    batches = MicroBatches(threading.Event(), interrupts=lambda: True)
    batches.landed.extend(BatchResult(number, rows=1, replayed=False) for number in range(2))
    query = Query(batches=2, turns=9)
    query.status = {"isTriggerActive": True}
    has_ended = watch(
        cast("Any", query),
        batches,
        on_batch=lambda progress: None,
        observer=cast("QueryObserver", Observer([0], [], [1])),
    )
    assert not has_ended
    assert query.stopped_at == 6


def test_a_failure_during_a_stop_is_raised() -> None:
    """A query that a failure has ended raises nothing in ``stop``; after a pause, the feed would then resume."""
    batches = MicroBatches(threading.Event(), interrupts=lambda: True)
    batches.failure = CheckpointMismatch("another driver has the feed")
    with pytest.raises(CheckpointMismatch, match="another driver"):
        watched(Query(batches=1, turns=9), Observer([0]), batches)


def test_a_run_of_many_batches_keeps_sums_and_the_newest_results() -> None:
    batches = MicroBatches(threading.Event())
    counts = Counts(records=3, dead_letters=1)

    def write(batch: object, batch_id: int) -> BatchResult:
        return BatchResult(batch_id, rows=2, replayed=batch_id == 5, counts=ZERO if batch_id == 5 else counts)

    guarded = batches.guarded(cast("Any", write))
    most = 3 * KEPT_RESULTS
    for number in range(5, most):
        guarded(cast("Any", None), number)
    assert [result.batch_id for result in batches.landed] == list(range(most - KEPT_RESULTS, most))
    found = batches.written
    assert (found.batches, found.rows) == (most - 6, 2 * (most - 6))
    assert found.counts == Counts(records=3 * (most - 6), dead_letters=most - 6)
    # Batch 5 was already in the sink, so it does not count.
    assert found.batch_ids == [range(6, most)]
    assert found.first is not None
    assert found.first.batch_id == 6
