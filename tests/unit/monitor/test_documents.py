"""Clients parse an endpoint's JSON to equal objects, and reject the answers of other programs."""

import json
import time
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from lakefeed.errors import Unreachable
from lakefeed.feed.progress import FinishedBatch, QueryState
from lakefeed.feed.s3_requests import BatchRequests
from lakefeed.ledger.outcomes import Reason
from lakefeed.monitor.drivers import Events, FeedServer
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.history import RunHistory
from lakefeed.monitor.model import FeedProgress
from lakefeed.offsets.ranges import OffsetRange
from lakefeed_dashboard.top.table import Trend, answered

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
        reasons=(Reason("not JSON", 10, "at offset 7"),),
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


def test_progress_read_back_from_json_equals_the_original() -> None:
    monitor = full_monitor()
    with monitor.batch(4, [OffsetRange("t", 0, 5, 9)]):
        document = json.loads(json.dumps(monitor.snapshot().as_dict()))
    assert json.loads(json.dumps(FeedProgress.model_validate(document).as_dict())) == document


def test_a_trend_starts_with_the_history_and_adds_each_batch_once() -> None:
    monitor, trend = full_monitor(), Trend()
    trend.add_history(RunHistory.model_validate(monitor.history_since(0.0, most=60).as_dict()))
    progress = FeedProgress.model_validate(monitor.snapshot().as_dict())
    for _ in range(2):
        seen = answered(progress, key="taxi", trend=trend, events=())
    assert [(point.rate, point.lag) for point in seen.points] == [(200, 5)]
    assert (seen.lag, seen.batch, seen.dead_letters, seen.requests) == (7, 3, 10, 17)
    assert seen.last_error == "it broke (here)"


class Answering(FeedServer):
    """A server that gives the same answer to all requests."""

    answer: Any = None

    def get(self, path: str) -> Any:
        return self.answer


@given(JSON)
def test_an_answer_of_another_program_raises_the_error_unreachable(document: Any) -> None:
    server = Answering("http://127.0.0.1:1")
    known = full_monitor().snapshot().as_dict()
    for shape in (document, dict.fromkeys(known, document), {**known, "partitions": [document]}):
        object.__setattr__(server, "answer", shape)
        for kind in (FeedProgress, RunHistory, Events):
            with suppress(Unreachable):
                json.dumps(server.read(kind, "/").as_dict())
