"""Metrics arrive at an OTLP collector; a collector that hangs or refuses them does not delay the run."""

import socket
import threading
import time

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from pydantic import ValidationError

from lakefeed.config.secrets import SecretText
from lakefeed.feed.progress import FinishedBatch
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.table import FeedReading
from lakefeed.offsets.ranges import OffsetRange
from lakefeed_observe.metrics.spark import LAST_SECONDS, pushing
from lakefeed_observe.otlp.collector import OtlpMetrics
from lakefeed_observe.otlp.settings import Otlp
from tests.support.clock import until
from tests.support.servers.otlp import collector, metrics_in


def monitor() -> FeedMonitor:
    found = FeedMonitor("taxi")
    found.begin(sink="iceberg", fence=None)
    with found.batch(1, [OffsetRange("trips", 0, 0, 100)]):
        pass
    found.finish(
        FinishedBatch(batch_id=1, finished_at=time.time(), seconds=0.7, records=100, rows=90, phases={"plan": 0.5}),
        ends={("trips", 0): 150},
    )
    return found


def test_the_collector_gets_the_values_of_the_monitor() -> None:
    watched = monitor()
    with collector() as (url, taken):
        headers = {"Authorization": SecretText("Bearer s3cret-token"), "X-Team": "lake"}
        settings = Otlp(endpoint=url, headers=headers, attributes={"deployment.environment.name": "test"})
        sender = OtlpMetrics(settings)
        assert sender.send(FeedReading.of(watched))
        sender.close()
    [(path, given, body)] = taken
    assert path == "/v1/metrics"
    assert (given["authorization"], given["x-team"]) == ("Bearer s3cret-token", "lake")
    assert b"s3cret" not in body
    found = metrics_in(body)
    [lag] = found["lakefeed_lag_offsets"].gauge.data_points
    assert (lag.as_int, lag.attributes[0].value.string_value) == (watched.snapshot().lag, "taxi")
    records = found["lakefeed_records_read"].sum
    assert records.is_monotonic
    assert records.aggregation_temporality == 2
    assert records.data_points[0].as_int == 100
    assert records.data_points[0].start_time_unix_nano == int(watched.snapshot().started_at * 1e9)
    [durations] = found["lakefeed_batch_duration_seconds"].histogram.data_points
    assert (durations.count, durations.sum, durations.min, durations.max) == (1, 0.7, 0.7, 0.7)
    assert sum(durations.bucket_counts) == 1
    assert len(durations.bucket_counts) == len(durations.explicit_bounds) + 1
    [resource] = ExportMetricsServiceRequest.FromString(body).resource_metrics
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert attributes["deployment.environment.name"] == "test"
    assert attributes["service.name"] == "lakefeed"


@pytest.mark.parametrize("status", [307, 401, 500])
def test_a_refusal_is_reported_once(status: int) -> None:
    changes: list[bool] = []
    watched = monitor()
    with collector(status) as (url, taken):
        sender = OtlpMetrics(Otlp(endpoint=url, timeout="1 second"))
        with pushing(
            "test",
            lambda: sender.send(FeedReading.of(watched)),
            every=0.01,
            on_change=changes.append,
            close=sender.close,
        ):
            until(lambda: len(taken) >= 3)
    assert changes == [False]


@pytest.mark.waits
def test_a_collector_that_hangs_does_not_delay_the_run() -> None:
    watched, done = monitor(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sender = OtlpMetrics(Otlp(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}", timeout="1 minute"))

        def push() -> bool:
            try:
                return sender.send(FeedReading.of(watched))
            finally:
                done.set()

        began = time.monotonic()
        with pushing("test", push, every=0.01, close=sender.close):
            time.sleep(0.1)
            with watched.batch(2, [OffsetRange("trips", 0, 100, 150)]):
                pass
            within = time.monotonic() - began
        assert within < 10
        assert time.monotonic() - began < LAST_SECONDS + 10
        connection, _ = silent.accept()
        connection.close()
    done.wait(10)


def test_metrics_arrive_when_the_collector_is_available_again() -> None:
    changes: list[bool] = []
    answers = iter([False, False, True, True])
    with pushing("test", lambda: next(answers, True), every=0.01, on_change=changes.append):
        until(lambda: len(changes) == 2)
    assert changes == [False, True]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"endpoint": "collector:4318"}, "URL"),
        ({"endpoint": "http://user:password@collector:4318"}, "credentials"),
        ({"endpoint": "http://collector", "headers": {"X": "a\r\nb"}}, "HTTP cannot send"),
        ({"endpoint": "http://collector", "headers": {"a b": "c"}}, "HTTP cannot send"),
        ({"endpoint": "http://collector", "every": "0 seconds"}, "1 second"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        Otlp.model_validate(settings)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/metrics"),
        ("https://collector/", "https://collector/v1/metrics"),
        ("https://collector/otlp/v1/metrics", "https://collector/otlp/v1/metrics"),
    ],
)
def test_the_path_of_the_protocol_is_appended_to_an_endpoint_without_a_path(endpoint: str, url: str) -> None:
    assert Otlp(endpoint=endpoint).url == url
