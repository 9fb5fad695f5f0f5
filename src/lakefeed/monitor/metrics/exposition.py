"""Writes metrics as text for Prometheus: in its format 0.0.4, or as OpenMetrics 1.0 for clients that request it.

Prometheus' client library writes the text of one driver. ``merged_text`` merges the texts of several drivers line by
line, because parsing the numbers of 50 feeds in Python would take seconds.
"""

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
LONGEST_TEXT = 16 * 1024 * 1024
"""The most bytes of a driver's text; longer texts are not merged. The setting ``metrics.partitions`` shortens a
driver's text.
"""

_SAMPLE = re.compile(
    r'(lakefeed_[a-z0-9_]+)((?:\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+\})?)'
    r" (?:[-+]?[0-9.]+(?:e[-+]?[0-9]+)?|NaN|[-+]Inf)"
)
_HEADER = re.compile(r"# (HELP|TYPE|UNIT) (lakefeed_[a-z0-9_]+) \S.*")
_EOF = "# EOF"


class MetricsText(NamedTuple):
    content_type: str
    body: str


def metrics_text(readings: Iterable[FeedReading], *, accept: str = "") -> MetricsText:
    """Return the metrics of feeds as text, in the format that the request's header ``accept`` asks for."""
    known = tuple(readings)
    return _text_of((family for metric in METRICS if (family := _family(metric, known)).samples), accept=accept)


def _text_of(families: Iterable[Family], *, accept: str) -> MetricsText:
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

    class Families(Collector):
        def collect(self) -> Iterable[Family]:
            return families

    content_type = OPEN_METRICS_TYPE if takes_open_metrics(accept) else TEXT_TYPE
    encode, _ = choose_encoder(content_type)
    return MetricsText(content_type, encode(Families()).decode())


def takes_open_metrics(accept: str) -> bool:
    """Return whether a client accepts OpenMetrics, and does not exclude it with a quality of 0."""
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


def merged_text(texts: Iterable[str], *, down: Iterable[str] = (), accept: str = "") -> MetricsText:
    """Merge the metrics of several drivers into one text.

    Lines that are not metrics of lakefeed are left out, and so are samples that repeat a name and its labels.

    Args:
        texts: the drivers' texts, which must be in the format that ``accept`` asks for.
        down: feeds whose drivers do not answer.
        accept: the header of the request.
    """
    families: dict[str, _Merged] = {}
    for text in texts:
        if len(text) <= LONGEST_TEXT:
            _merge(text, families)
    if missing := [label_value(feed) for feed in down]:
        from prometheus_client.core import GaugeMetricFamily

        up = GaugeMetricFamily(METRICS[0].name, METRICS[0].help, labels=["feed"])
        for feed in missing:
            up.add_metric([feed], 0)
        _merge(_text_of([up], accept="").body, families)
    lines = [line for family in families.values() for line in (*family.header.values(), *family.samples.values())]
    if takes_open_metrics(accept):
        return MetricsText(OPEN_METRICS_TYPE, "\n".join([*lines, _EOF, ""]))
    return MetricsText(TEXT_TYPE, "\n".join([*lines, ""]))


class _Merged(NamedTuple):
    """A family of metrics: the lines of its header by keyword, and its samples by name and labels."""

    header: dict[str, str]
    samples: dict[str, str]


def _merge(text: str, families: dict[str, _Merged]) -> None:
    current: _Merged | None = None
    for line in text.split("\n"):
        if line.startswith("#"):
            header = _HEADER.fullmatch(line)
            if header is not None:
                current = families.setdefault(header[2], _Merged({}, {}))
                current.header.setdefault(header[1], line)
        elif current is not None and (sample := _SAMPLE.fullmatch(line)) is not None:
            current.samples.setdefault(f"{sample[1]}{sample[2]}", line)
