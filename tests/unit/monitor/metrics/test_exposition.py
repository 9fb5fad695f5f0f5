"""The text of /metrics has the values of the progress model, whatever the names of topics and reasons."""

import re
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parsed

from lakefeed.feed.progress import FinishedBatch, QueryState
from lakefeed.feed.s3_requests import BatchRequests
from lakefeed.ledger.outcomes import Reason
from lakefeed.messages.redaction import remember
from lakefeed.monitor.counters import MOST_REASONS, OTHER
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.exposition import OPEN_METRICS_TYPE, TEXT_TYPE, metrics_text
from lakefeed.monitor.metrics.table import METRICS, FeedReading, MetricSettings
from lakefeed.offsets.ranges import OffsetRange
from tests.support.clock import Clock

HOSTILE = (
    '<script>alert("1")</script>',
    'back\\slash "quote"\nline {x="1"} 2',
    "\u202eright-to-left \x1b[31m\x00",
    "\ud800 alone",
    "x" * 5000,
    "",
)
OPEN_METRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def batch(number: int, **figures: Any) -> FinishedBatch:
    known = {"batch_id": number, "finished_at": Clock.now, "seconds": 2.0, "records": 100, "rows": 99}
    return FinishedBatch(**{**known, **figures})


def monitor_of(feed: str = "taxi", *, topic: str = "trips", partitions: int = 2) -> FeedMonitor:
    """Return the monitor of a feed that has committed a batch; each partition has 400 uncommitted offsets."""
    clock = Clock()
    monitor = FeedMonitor(feed, clock=clock)
    spans = [OffsetRange(topic, number, 0, 100) for number in range(partitions)]
    monitor.begin(sink="iceberg lake.nyc.trips", fence=None)
    with monitor.batch(1, spans):
        clock.now += 2
    ends = {span.key: 500 for span in spans}
    requests = BatchRequests(
        total=9, errors=1, bytes_out=700, bytes_in=30, data_files=2, by_class={"data": 4}, budget=8
    )
    monitor.finish(
        batch(
            1,
            dead_letters=3,
            left_out=6,
            reasons=(Reason("not JSON", 2),),
            phases={"plan": 0.25, "write sink": 1.5},
            requests=requests,
            state=QueryState(watermark="2026-11-20T06:30:00.000Z", rows=5, bytes=50, late_rows=1),
            schema_id=12,
        ),
        ends=ends,
    )
    monitor.audited("branch staging of lake.ns.t is published", is_published=True)
    monitor.audited("branch staging of lake.ns.t is not published: id is not unique", is_published=False)
    monitor.audited("branch staging of lake.ns.t is not published: id is not unique", is_published=False)
    return monitor


def series(families: Iterable[Family]) -> Series:
    samples = (sample for family in families for sample in family.samples)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(found: Series, name: str, **labels: str) -> float:
    return found[name, frozenset({"feed": "taxi", **labels}.items())]


@pytest.mark.parametrize("accept", ["", "text/plain", OPEN_METRICS])
def test_the_text_of_metrics_has_the_models_values(accept: str) -> None:
    monitor = monitor_of()
    text = metrics_text([FeedReading.of(monitor)], accept=accept)
    found = series((parsed_open_metrics if accept == OPEN_METRICS else parsed)(text.body))
    assert text.content_type == (OPEN_METRICS_TYPE if accept == OPEN_METRICS else TEXT_TYPE)
    assert value(found, "lakefeed_records_read_total") == 100
    assert value(found, "lakefeed_rows_with_left_out_fields_total") == 6
    assert value(found, "lakefeed_lag_offsets") == monitor.snapshot().lag == 800
    assert value(found, "lakefeed_partition_lag_max_offsets") == 400
    assert value(found, "lakefeed_partition_committed_offset", topic="trips", partition="1") == 100
    assert value(found, "lakefeed_feed_state", state="waiting") == 1
    assert value(found, "lakefeed_feed_state", state="failed") == 0
    assert value(found, "lakefeed_dead_letters_by_reason_total", reason="not JSON") == 2
    assert value(found, "lakefeed_dead_letters_by_reason_total", reason=OTHER) == 1
    assert value(found, "lakefeed_s3_requests_total", **{"class": "data"}) == 4
    assert value(found, "lakefeed_s3_requests_total", **{"class": "unknown"}) == 5
    assert value(found, "lakefeed_batches_over_s3_budget_total") == 1
    assert value(found, "lakefeed_publications_total") == 1
    assert value(found, "lakefeed_failed_audits_total") == 2
    assert value(found, "lakefeed_batch_phase_seconds_total", phase="write sink") == 1.5
    assert value(found, "lakefeed_batch_duration_seconds_bucket", le="1.0") == 0
    assert value(found, "lakefeed_batch_duration_seconds_bucket", le="2.5") == 1
    assert value(found, "lakefeed_batch_duration_seconds_bucket", le="+Inf") == 1
    assert value(found, "lakefeed_batch_duration_seconds_sum") == 2.0
    assert value(found, "lakefeed_watermark_timestamp_seconds") == 1_795_156_200


def test_every_metric_of_the_table_can_be_in_the_text() -> None:
    monitor = monitor_of()
    monitor.paused({"archive": "the bucket has gone"})
    monitor.ended(ValueError("x"))
    with monitor.batch(2, [OffsetRange("trips", 0, 100, 200)]):
        monitor.finish(
            batch(
                2,
                input_rate=10.0,
                lag=5,
                offsets=100,
                requests=BatchRequests(total=1, budget=5),
                state=QueryState(watermark="2026-11-20T06:30:00Z", rows=1, bytes=1),
                schema_id=1,
            )
        )
        clock_passes(monitor, 5)
        found = {family.name for family in parsed(metrics_text([FeedReading.of(monitor)]).body)}
    missing = {metric.name.removesuffix("_total") for metric in METRICS} - found
    assert missing <= {"lakefeed_running_batch_records", "lakefeed_lag_seconds", "lakefeed_partition_lag_seconds"}


def clock_passes(monitor: FeedMonitor, seconds: float) -> None:
    clock = monitor._clock
    assert isinstance(clock, Clock)
    clock.now += seconds


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("accept", ["", OPEN_METRICS])
def test_hostile_names_occur_only_as_values_of_labels(text: str, accept: str) -> None:
    monitor = monitor_of(text, topic=text)
    monitor.paused({text: text})
    monitor.finish(batch(2, dead_letters=7, reasons=(Reason(text, 7),)))
    body = metrics_text([FeedReading.of(monitor)], accept=accept).body
    assert body.replace("\n", "").isprintable()
    found = list((parsed_open_metrics if accept else parsed)(body))
    samples = [line for line in body.splitlines() if not line.startswith("#")]
    assert sum(len(family.samples) for family in found) == len(samples)
    values = [label for family in found for sample in family.samples for label in sample.labels.values()]
    assert max(map(len, values)) <= 250
    assert {family.name for family in found} <= {metric.name.removesuffix("_total") for metric in METRICS}


def test_the_number_of_series_for_reasons_of_dead_letters_is_limited() -> None:
    monitor = monitor_of()
    for number in range(500):
        monitor.finish(batch(number, dead_letters=1, reasons=(Reason(f"reason {number}", 1),)))
    found = series(parsed(metrics_text([FeedReading.of(monitor)]).body))
    name = "lakefeed_dead_letters_by_reason_total"
    counts = {labels: count for (metric, labels), count in found.items() if metric == name}
    assert len(counts) == MOST_REASONS + 1
    assert sum(counts.values()) == value(found, "lakefeed_dead_letters_total") == 503


def test_only_some_partitions_have_series_and_sums_include_all_partitions() -> None:
    reading = FeedReading.of(monitor_of(partitions=50), MetricSettings(partitions=3))
    found = series(parsed(metrics_text([reading]).body))
    assert len([name for name, _ in found if name == "lakefeed_partition_lag_offsets"]) == 3
    assert value(found, "lakefeed_partitions") == 50
    assert value(found, "lakefeed_partitions_omitted") == 47
    assert value(found, "lakefeed_lag_offsets") == 50 * 400


def test_counters_never_decrease_when_a_query_restarts() -> None:
    monitor = monitor_of()

    def counters() -> Series:
        families = parsed(metrics_text([FeedReading.of(monitor)]).body)
        found = series(families).items()
        return {key: value for key, value in found if re.search("_total$|_bucket$|_count$|_sum$", key[0])}

    before = counters()
    monitor.restarted("the schema has changed")
    monitor.finish(batch(0, replayed=True, phases={"plan": -1.0}))
    monitor.finish(batch(1, seconds=-1.0))
    after = counters()
    assert before.keys() <= after.keys()
    assert all(after[key] >= count for key, count in before.items())
    assert value(after, "lakefeed_batches_total") == 2
    assert value(after, "lakefeed_batches_replayed_total") == 1
    assert value(after, "lakefeed_query_restarts_total") == 1


def test_no_secret_is_a_label() -> None:
    remember(["hunter2-hunter2"])
    monitor = monitor_of(topic="hunter2-hunter2")
    monitor.paused({"hunter2-hunter2": "x"})
    monitor.finish(batch(2, dead_letters=1, reasons=(Reason("at hunter2-hunter2", 1),)))
    assert "hunter2" not in metrics_text([FeedReading.of(monitor)]).body


def test_names_follow_the_conventions_of_prometheus() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"lakefeed_[a-z][a-z0-9_]*", metric.name), metric.name
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert not re.search(r"_(count|sum|bucket|milliseconds|minutes|kb|mb|ms|gauge|counter)$", metric.name)
        assert metric.help.endswith("."), metric.name
        assert all(re.fullmatch(r"[a-z_]+", label) and label not in ("feed", "le") for label in metric.labels)
