"""During a run, events are sent to a lineage server, which answers, hangs or refuses them."""

import json
import socket
import threading
import time
from typing import Any

import pytest

from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError
from lakefeed.feed.progress import FinishedBatch
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.followers import FollowedRun, following
from lakefeed_observe.lineage.follower import LineageFollower, LineageRun, reporting
from lakefeed_observe.lineage.settings import Lineage
from tests.support.clock import until
from tests.support.openlineage import server
from tests.support.pipeline_text import feed_config


def config(url: str, **settings: Any) -> PipelineConfig:
    lineage = {"url": url, "api_key": "canary-key", "every": "1 second", "timeout_seconds": 1, **settings}
    return feed_config(sink="memory", checkpoint=None, lineage=lineage)


def run_of(url: str, **settings: Any) -> LineageRun:
    pipeline = config(url, **settings)
    lineage = pipeline.block(Lineage)
    assert lineage is not None
    return LineageRun(config=pipeline, connections=Connections(), lineage=lineage)


def batch(number: int) -> FinishedBatch:
    return FinishedBatch(batch_id=number, finished_at=float(number), seconds=1.0, records=10, rows=10)


def test_a_run_is_reported_from_its_start_to_its_end() -> None:
    monitor = FeedMonitor("taxi")
    with server() as (url, events, keys):
        with (
            following(FollowedRun(config=config(url), monitor=monitor, connections=Connections())),
            monitor.until_end(),
        ):
            until(lambda: len(events) == 1)
            monitor.finish(batch(0))
            until(lambda: len(events) == 2)
            time.sleep(1.2)  # Wait longer than `every`: without a new batch, the follower sends no event.
        assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    assert set(keys) == {"Bearer canary-key"}
    assert "canary-key" not in json.dumps(events)
    assert events[-1]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 10


def test_the_last_event_has_the_message_of_an_error() -> None:
    monitor = FeedMonitor("taxi")
    with server() as (url, events, _), pytest.raises(ConfigError), reporting(run_of(url), monitor), monitor.until_end():
        raise ConfigError("no such table", where="lake.a.b")
    assert [event["eventType"] for event in events] == ["START", "FAIL"]
    assert events[-1]["run"]["facets"]["errorMessage"]["message"] == "ConfigError: no such table (lake.a.b)"


@pytest.mark.waits
def test_a_server_that_hangs_delays_the_run_by_timeout_seconds_at_most() -> None:
    monitor = FeedMonitor("taxi")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with reporting(run_of(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=3), monitor):
            assert time.monotonic() - began < 2.5
            monitor.finish(batch(0))
        assert time.monotonic() - began < 12
    [note] = [event for event in monitor.events.after() if event.kind == "note"]
    assert "lineage events do not arrive" in note.message


def test_a_failure_that_persists_is_noted_once_and_the_start_event_is_retried() -> None:
    monitor, statuses, sent = FeedMonitor("taxi"), iter([503, 503, 200, 200]), list[str]()

    def post(body: bytes, seconds: float) -> int:
        assert 0 < seconds <= 1
        sent.append(json.loads(body)["eventType"])
        return next(statuses)

    follower = LineageFollower(run_of("http://nowhere"), monitor, post=post)
    thread = threading.Thread(target=follower.follow)
    thread.start()
    until(lambda: len(sent) == 1)
    monitor.finish(batch(0))
    until(lambda: len(sent) == 2)
    monitor.ended()
    follower.finish()
    thread.join(5)
    assert sent == ["START", "START", "START", "COMPLETE"]
    assert len([event for event in monitor.events.after() if event.kind == "note"]) == 1
