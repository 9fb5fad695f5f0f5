"""The documents of an endpoint, read back: the same feed, and nothing that a stranger writes is an error."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from lakefeed.errors import Unreachable
from lakefeed.monitor.documents import JsonObject, batch_of, event_of, progress_of
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import BatchRequests, DeadLetterReason, FinishedBatch, QueryState
from lakefeed.monitor.seen import Trend, answered
from lakefeed.offsets.ranges import OffsetRange

JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner, max_size=3),
    max_leaves=10,
)


def full_monitor() -> FeedMonitor:
    monitor = FeedMonitor("taxi")
    monitor.begin(sink="iceberg lake.a.b", fence="7 x", position=[OffsetRange("t", 0, 0, 5)])
    batch = FinishedBatch(
        batch_id=3,
        finished_at=time.time(),
        seconds=0.5,
        records=100,
        rows=90,
        lag=5,
        dead_letters=10,
        reasons=(DeadLetterReason("not JSON", 10, "at offset 7"),),
        phases={"plan": 0.1, "write": 0.4},
        requests=BatchRequests(total=17, data_files=2, budget=16),
        state=QueryState(watermark="2026-01-01T00:00:00Z", rows=3),
        schema_id=4,
        notes=("a column was added",),
    )
    monitor.finish(batch, ends={("t", 0): 12})
    monitor.failed(Unreachable("it broke", where="here", hint="fix it"))
    monitor.paused({"copy": "away"})
    return monitor


def test_a_feed_that_is_read_back_is_the_same() -> None:
    monitor = full_monitor()
    with monitor.batch(4, [OffsetRange("t", 0, 5, 9)]):
        document = json.loads(json.dumps(monitor.snapshot().as_dict()))
    again = json.loads(json.dumps(progress_of(document).as_dict()))
    # Neither classes of requests nor ranges are shown by who reads them back.
    document["last_batch"]["requests"]["by_class"] = {}
    # Times are shown in milliseconds, and so is the one that the seconds since are counted from.
    assert again["running"].pop("seconds") == pytest.approx(document["running"].pop("seconds"), abs=0.002)
    assert again == document


def test_a_trend_takes_the_history_and_then_each_batch_once() -> None:
    monitor, trend = full_monitor(), Trend()
    [batch] = monitor.batches()
    trend.add_history({"points": [p.as_dict() for p in monitor.points()], "batches": [batch.as_dict()]})
    progress = progress_of(monitor.snapshot().as_dict())
    for _ in range(2):
        seen = answered(progress, key="taxi", trend=trend)
    assert [(point.rate, point.lag) for point in seen.points] == [(200, 5)]
    assert (seen.lag, seen.batch, seen.dead_letters, seen.requests) == (7, 3, 10, 17)
    assert seen.last_error == "it broke (here)"


@given(JSON)
def test_whatever_a_stranger_answers_is_no_error(document: Any) -> None:
    names = progress_of({}).as_dict()
    for shape in (document, dict.fromkeys(names, document), {**names, "partitions": [document]}):
        json.dumps(answered(progress_of(shape), key="x", trend=Trend()).as_dict())
        batch_of(JsonObject(shape))
        event_of(JsonObject(shape))
        Trend().add_history({"points": [shape], "batches": document})
