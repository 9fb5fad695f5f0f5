"""When a table of many is due: at once, or when a batch has come together, or when its first record has waited."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from lakefeed.feed.multi_table.table import TableTask
from lakefeed.pipeline import Pipeline
from tests.unit.config.test_topic_tables import ENVIRONMENT, written
from tests.unit.feed.multi_table.test_ranges import topic


class Clock:
    """Time that passes when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def table(folder: Path, **source: Any) -> TableTask:
    kafka = {"bootstrap_servers": "localhost:9092", "topics_pattern": "shop[.].*", **source}
    pipeline = Pipeline.from_file(written(folder, source={"kafka": kafka}), environment=ENVIRONMENT)
    spark: Any = None
    made = TableTask("shop.a", pipeline.of_topic("shop.a").feed, spark, "pause", 60)
    started: Any = object()
    made._writer, made._position = started, {0: 0}
    return made


def test_without_a_lower_bound_one_record_is_enough(tmp_path: Path) -> None:
    assert table(tmp_path).is_due(topic((0, 1)))
    assert not table(tmp_path).is_due(topic((0, 0)))


def test_a_batch_comes_together_or_its_first_record_has_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    gathering = table(tmp_path, min_records_per_batch=100, max_wait="30 seconds")
    assert gathering.is_due(topic((0, 100)))
    assert not gathering.is_due(topic((0, 99)))
    clock.now += 29
    assert not gathering.is_due(topic((0, 99)))
    clock.now += 1
    assert gathering.is_due(topic((0, 99)))


def test_nothing_is_waited_for_at_the_end(tmp_path: Path) -> None:
    gathering = table(tmp_path, min_records_per_batch=100)
    assert gathering.is_due(topic((0, 1)), until={0: 1})
    assert not gathering.is_due(topic((0, 0)), until={0: 0})
