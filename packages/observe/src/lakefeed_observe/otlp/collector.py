"""Send metrics to a collector by OpenTelemetry's protocol (OTLP over HTTP).

The points come from the same table as ``/metrics``; OpenTelemetry's exporter sends them. OpenTelemetry's meters are not
used, because they would count again what the monitor counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

from lakefeed.config.secrets import plain
from lakefeed.config.values import seconds_of
from lakefeed.errors import MissingExtra
from lakefeed.monitor.metrics.table import METRICS, Buckets, FeedReading, Metric, MetricSettings, label_value
from lakefeed.operations.followers import FollowedRun
from lakefeed_observe.metrics.spark import pushing
from lakefeed_observe.otlp.settings import Otlp

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk.metrics import export

_EXPORTER = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
_UNITS = {"seconds": "s", "bytes": "By"}
"""Counts have no unit: with the unit 1, a Prometheus collector adds "ratio" to a gauge's name."""
_MOST_POINTS = 5000
"""The most points in one request, because collectors limit the size of a request to a few megabytes."""


class OtlpMetrics:
    """The connection to one collector.

    Raises:
        MissingExtra: OpenTelemetry is not installed.
    """

    def __init__(self, settings: Otlp) -> None:
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
            raise MissingExtra.of("opentelemetry", "otlp", "the block otlp")
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        # The exporter would write a warning to stderr for every retry; `follow` reports the first failure instead.
        logging.getLogger(_EXPORTER).setLevel(logging.CRITICAL)
        self._settings = settings
        self._exporter = OTLPMetricExporter(
            endpoint=settings.url,
            headers={name: plain(value) for name, value in settings.headers.items()},
            timeout=seconds_of(settings.timeout),
            session=_session(),
            max_export_batch_size=_MOST_POINTS,
        )

    def send(self, reading: FeedReading) -> bool:
        """Send the metrics; return True if the collector accepts them."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        data = metrics_data(reading, attributes=self._settings.attributes)
        return self._exporter.export(data) is MetricExportResult.SUCCESS

    def close(self) -> None:
        """Close the connection, and end a wait for a retry."""
        self._exporter.shutdown()


def follow(run: FollowedRun) -> AbstractContextManager[None]:
    """Send the metrics of a run if its pipeline file has a collector.

    Raises:
        MissingExtra: the file has a collector, but OpenTelemetry is not installed.
    """
    otlp = run.config.block(Otlp)
    return nullcontext() if otlp is None or run.is_failed_start else _sending(otlp, run)


@contextmanager
def _sending(otlp: Otlp, run: FollowedRun) -> Iterator[None]:
    collector, settings = OtlpMetrics(otlp), MetricSettings.of(run.config)

    def note(works: bool) -> None:
        what = "accepts the metrics again" if works else "does not accept the metrics"
        run.monitor.note(f"the collector {otlp.url} {what}")

    def push() -> bool:
        return collector.send(FeedReading.of(run.monitor, settings))

    with pushing("otlp", push, every=seconds_of(otlp.every), on_change=note, close=collector.close):
        yield


def _session() -> requests.Session:
    """Return a session that treats a redirect as a failure, so that no other server gets headers with secrets."""
    import requests

    def refuse(answer: requests.Response, *given: object, **more: object) -> None:
        if answer.is_redirect:
            raise requests.HTTPError("the collector answers with a redirect")

    session = requests.Session()
    session.hooks["response"] = [refuse]
    return session


def metrics_data(reading: FeedReading, *, attributes: Mapping[str, str]) -> export.MetricsData:
    """Return a feed's metrics as OpenTelemetry's objects."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    driver = reading.progress.driver
    resource = Resource(
        {
            "service.name": "lakefeed",
            "service.instance.id": f"{driver.host}:{driver.pid}",
            "service.version": driver.version,
            "host.name": driver.host,
            "process.pid": driver.pid,
            **attributes,
        }
    )
    scope = InstrumentationScope("lakefeed", driver.version)
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, list(_metrics(reading)), "")], "")])


def _metrics(reading: FeedReading) -> Iterator[export.Metric]:
    from opentelemetry.sdk.metrics import export

    cumulative = export.AggregationTemporality.CUMULATIVE
    for metric in METRICS:
        numbers, histograms = _points(metric, reading)
        data: export.Gauge | export.Sum | export.Histogram
        if histograms:
            data = export.Histogram(histograms, cumulative)
        elif metric.kind == "gauge":
            data = export.Gauge(numbers)
        else:
            data = export.Sum(numbers, cumulative, is_monotonic=True)
        if numbers or histograms:
            yield export.Metric(metric.name.removesuffix("_total"), metric.help, _UNITS.get(metric.unit, ""), data)


def _points(
    metric: Metric, reading: FeedReading
) -> tuple[Sequence[export.NumberDataPoint], Sequence[export.HistogramDataPoint]]:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint

    began, now = (int(at * 1e9) for at in (reading.progress.started_at, reading.progress.taken_at))
    numbers: list[NumberDataPoint] = []
    histograms: list[HistogramDataPoint] = []
    for values, value in metric.values(reading).items():
        labels = dict(zip(("feed", *metric.labels), (label_value(reading.progress.feed), *values), strict=True))
        if not isinstance(value, Buckets):
            numbers.append(NumberDataPoint(labels, began, now, float(value) if isinstance(value, bool) else value))
        elif count := sum(value.counts):
            ends = value.least, value.greatest
            histograms.append(
                HistogramDataPoint(labels, began, now, count, value.sum, value.counts, value.bounds, *ends)
            )
    return numbers, histograms
