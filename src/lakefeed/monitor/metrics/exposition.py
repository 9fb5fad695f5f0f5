"""Writes metrics as text for Prometheus: in its format 0.0.4, or as OpenMetrics 1.0 for clients that request it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import isinf
from typing import TYPE_CHECKING, NamedTuple

from lakefeed.monitor.metrics.table import METRICS, Buckets, FeedReading, Labels, Metric, label_value

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

OPEN_METRICS = "application/openmetrics-text"
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE = f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"


class MetricsText(NamedTuple):
    content_type: str
    body: str


def metrics_text(readings: Iterable[FeedReading], *, accept: str = "") -> MetricsText:
    """Return the feeds' metrics as text, in the format that ``accept``, a header of the request, asks for."""
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

    known = tuple(readings)

    class Families(Collector):
        def collect(self) -> Iterable[Family]:
            return (family for metric in METRICS if (family := _family(metric, known)).samples)

    content_type = OPEN_METRICS_TYPE if takes_open_metrics(accept) else TEXT_TYPE
    encode, _ = choose_encoder(content_type)
    return MetricsText(content_type, encode(Families()).decode())


def takes_open_metrics(accept: str) -> bool:
    """Return whether a client accepts OpenMetrics, with a quality above 0."""
    for wish in accept.lower().split(","):
        name, *parameters = (part.strip() for part in wish.split(";"))
        if name == OPEN_METRICS:
            return not any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
    return False


def _family(metric: Metric, readings: Sequence[FeedReading]) -> Family:
    from prometheus_client import Metric as Family

    family = Family(metric.name.removesuffix("_total"), metric.help, metric.kind, metric.unit)
    names = ("feed", *metric.labels)
    seen: set[Labels] = set()
    for reading in readings:
        feed = label_value(reading.progress.feed)
        for own, value in metric.values(reading).items():
            if (feed, *own) in seen:
                continue
            seen.add((feed, *own))
            labels = dict(zip(names, (feed, *own), strict=True))
            if isinstance(value, Buckets):
                _add_buckets(family, labels, value)
            else:
                family.add_sample(metric.name, labels, float(value))
    return family


def _add_buckets(family: Family, labels: dict[str, str], buckets: Buckets) -> None:
    for bound, count in buckets.cumulative:
        le = "+Inf" if isinf(bound) else str(bound)
        family.add_sample(f"{family.name}_bucket", {**labels, "le": le}, count)
    family.add_sample(f"{family.name}_count", labels, sum(buckets.counts))
    family.add_sample(f"{family.name}_sum", labels, buckets.sum)
