"""The block ``otlp`` of a pipeline file sends the metrics of a run."""

import socket
import time
from contextlib import AbstractContextManager
from typing import Any

import pytest

from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import MissingExtra
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.followers import FollowedRun
from lakefeed_observe.metrics.spark import LAST_SECONDS
from lakefeed_observe.otlp.collector import follow
from tests.support.pipeline_text import feed_config
from tests.support.servers.otlp import collector, metrics_in


def config(**otlp: Any) -> PipelineConfig:
    return feed_config(otlp={"every": "1 second", **otlp})


def followed(settings: PipelineConfig, monitor: FeedMonitor) -> AbstractContextManager[None]:
    return follow(FollowedRun(config=settings, monitor=monitor, connections=Connections()))


def messages(monitor: FeedMonitor) -> list[str]:
    return [event.message for event in monitor.events.after() if event.kind == "note"]


def test_the_last_metrics_show_that_the_run_has_ended() -> None:
    monitor = FeedMonitor("taxi")
    with collector() as (url, taken):
        with followed(config(endpoint=url), monitor):
            monitor.ended()
        states = metrics_in(taken[-1][2])["lakefeed_feed_state"].gauge.data_points
    assert [each.attributes[1].value.string_value for each in states if each.as_int] == ["ended"]


@pytest.mark.waits
def test_a_collector_that_does_not_answer_is_noted_once_and_without_secrets() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monitor = FeedMonitor("taxi")
    settings = config(endpoint=f"http://127.0.0.1:{port}", timeout="1 second", headers={"X-Key": "hunter2"})
    with followed(settings, monitor):
        until = time.monotonic() + 15
        while not messages(monitor) and time.monotonic() < until:
            time.sleep(0.05)
        began = time.monotonic()
    assert time.monotonic() - began < LAST_SECONDS + 6
    assert messages(monitor) == [f"the collector http://127.0.0.1:{port}/v1/metrics does not accept the metrics"]


def test_a_run_does_not_begin_if_opentelemetry_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefeed_observe.otlp.collector.find_spec", lambda name: None)
    with (
        pytest.raises(MissingExtra, match="the block otlp"),
        followed(config(endpoint="http://localhost"), FeedMonitor("taxi")),
    ):
        pass
