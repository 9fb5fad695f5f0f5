"""Merges the metrics of several drivers line by line: parsing the numbers of 50 feeds in Python would take seconds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from lakefeed.monitor.metrics.exposition import OPEN_METRICS_TYPE, TEXT_TYPE, MetricsText, takes_open_metrics
from lakefeed.monitor.metrics.table import METRICS, label_value

LONGEST_TEXT = 16 * 1024 * 1024
"""The most bytes of one driver's metrics; more are not merged. The setting ``metrics.partitions`` shortens them.
"""
_SAMPLE = re.compile(
    r'(lakefeed_[a-z0-9_]+)((?:\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+\})?)'
    r" (?:[-+]?[0-9.]+(?:e[-+]?[0-9]+)?|NaN|[-+]Inf)"
)
_HEADER = re.compile(r"# (HELP|TYPE|UNIT) (lakefeed_[a-z0-9_]+) \S.*")
_EOF = "# EOF"


class _Merged(NamedTuple):
    """A family of metrics: the lines of its header by keyword, and its samples by name and labels."""

    header: dict[str, str]
    samples: dict[str, str]


def merged_text(texts: Iterable[str], *, down: Iterable[str] = (), accept: str = "") -> MetricsText:
    """Merge the metrics of several drivers into one text.

    Lines other than lakefeed's metrics are left out, and so are repeated samples of the same name and labels.

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
        _merge(_not_up(missing), families)
    lines = [line for family in families.values() for line in (*family.header.values(), *family.samples.values())]
    if takes_open_metrics(accept):
        return MetricsText(OPEN_METRICS_TYPE, "\n".join([*lines, _EOF, ""]))
    return MetricsText(TEXT_TYPE, "\n".join([*lines, ""]))


def _not_up(feeds: Iterable[str]) -> str:
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    up = Gauge(METRICS[0].name, METRICS[0].help, ["feed"], registry=registry)
    for feed in feeds:
        up.labels(feed).set(0)
    return generate_latest(registry).decode()


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
