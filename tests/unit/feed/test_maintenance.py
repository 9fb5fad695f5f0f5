"""Upkeep in a job of many tables maintains the tables one by one, including new tables."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from lakefeed.config.models import PipelineConfig
from lakefeed.config.operation import Upkeep
from lakefeed.errors import TableBusy
from lakefeed.feed import maintenance as schedule
from lakefeed.feed.maintenance import tables_of, upkeep_beside_feed


def config(**sink: Any) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"kafka": {"bootstrap_servers": "localhost:9092", "topics": ["a"]}},
            "decode": "raw",
            "dead_letters": {"table": "lake.shop.dead"},
            "sink": {"iceberg": {"table": "lake.shop.a", **sink}},
            "checkpoint": "s3a://lake/c",
            "upkeep": {"every": "1 second"},
        }
    )


class Jobs:
    """A stand-in for ``Maintenance`` that records its table and checks that no other table's upkeep runs."""

    def __init__(self, enough: int) -> None:
        self.looked: list[str] = []
        self.all_done = threading.Event()
        self._enough = enough
        self._alone = threading.Lock()

    def __call__(self, table: str, *, settings: Upkeep, **rest: Any) -> Jobs:
        self._table = table
        return self

    def run(self, *, asked: bool) -> Any:
        assert self._alone.acquire(blocking=False)
        self.looked.append(self._table)
        if len(self.looked) >= self._enough:
            self.all_done.set()
        self._alone.release()
        raise TableBusy("another job is at work")


def test_upkeep_maintains_all_tables_one_by_one_including_new_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(enough=5)
    monkeypatch.setattr(schedule, "Maintenance", jobs)
    monkeypatch.setattr(schedule, "next_time", lambda settings, *, now: now)
    known = ["lake.shop.a"]

    def tables() -> list[str]:
        known.append(f"lake.shop.t{len(known)}")
        return list(known)

    spark: Any = None
    feed: Any = SimpleNamespace(config=config(), connections=None)
    with upkeep_beside_feed(feed, spark, tables=tables):
        assert jobs.all_done.wait(30)
    # The upkeep calls tables() once to find the time of the first round, and then in every round.
    assert jobs.looked[:5] == ["lake.shop.a", "lake.shop.t1", "lake.shop.t2", "lake.shop.a", "lake.shop.t1"]


def test_tables_of_returns_each_table_once() -> None:
    with_history = config(mode="upsert", keys=["kafka_key"], history="lake.shop.a_history")
    assert tables_of(config(), with_history) == ("lake.shop.a", "lake.shop.dead", "lake.shop.a_history")
