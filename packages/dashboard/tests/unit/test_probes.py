"""Kubernetes' probes and Prometheus get answers from /health and /metrics."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from lakefeed.config.base import validated
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.table import MetricSettings
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.endpoint import OwnFeed
from lakefeed_dashboard.server import serve
from lakefeed_dashboard.settings import Dashboard
from tests.support.clock import Clock

TOKEN = "viewers-token-of-these-tests-1234567890"
PATHS = ("/health/live", "/health/ready", "/health", "/metrics")


@contextmanager
def client(monitor: FeedMonitor) -> Iterator[httpx.Client]:
    """Yield a client of a driver's dashboard that requires a login."""
    tokens = [{"name": "prometheus", "role": "viewer", "token": TOKEN}]
    settings = validated(Dashboard, "test", port=0, tokens=tokens)
    feed = OwnFeed(monitor, settings=MetricSettings(no_commit_seconds=600.0))
    with serve(feed, settings) as served, httpx.Client(base_url=served) as asking:
        yield asking


def statuses(asking: httpx.Client) -> list[int]:
    given = {"Authorization": f"Bearer {TOKEN}"}
    return [asking.get(path, headers=given).status_code for path in PATHS]


def test_probes_need_no_token_and_their_answers_show_no_name() -> None:
    monitor = FeedMonitor("hidden_name", clock=Clock())
    monitor.begin(sink="iceberg hidden.sink", fence=None)
    with client(monitor) as asking:
        live, ready, health, metrics = (asking.get(path) for path in PATHS)
        assert (live.json(), ready.json()) == ({"live": True}, {"ready": True})
        assert (health.status_code, metrics.status_code) == (401, 401)
        assert not any("hidden" in answer.text for answer in (live, ready, health, metrics))
        assert asking.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
        shown = asking.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        assert shown.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {family.name: family for family in parsed(shown.text)}
        assert families["lakefeed_feed_up"].samples[0].labels == {"feed": "hidden_name"}


@pytest.mark.parametrize("state", ["starting", "hangs", "stalled", "failed", "ended"])
def test_the_state_of_the_feed_decides_which_probes_fail(state: str) -> None:
    clock = Clock()
    monitor = FeedMonitor("taxi", clock=clock)
    expected = {
        "starting": [200, 503, 200, 200],
        "hangs": [503, 503, 503, 200],
        "stalled": [200, 200, 503, 200],
        "failed": [503, 503, 503, 200],
        "ended": [200, 503, 200, 200],
    }
    if state != "starting":
        monitor.begin(sink="", fence=None, position=[OffsetRange("t", 0, 0, 5)])
        clock.now += 1
        monitor.tick()
    if state == "hangs":
        clock.now += 61
    elif state == "stalled":
        monitor.observe_ends({("t", 0): 9})
        clock.now += 601
        monitor.tick()
    elif state in ("failed", "ended"):
        monitor.ended(ValueError() if state == "failed" else None)
    with client(monitor) as asking:
        assert statuses(asking) == expected[state]
