"""In a job of many tables, upkeep maintains one table after the other, including new tables."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import TableBusy
from lakefeed.lazy import SparkSession
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.followers import FollowedRun
from lakefeed_upkeep import schedule
from lakefeed_upkeep.schedule import follow
from lakefeed_upkeep.settings import Upkeep
from tests.support.pipeline_text import feed_config


def config(**sink: Any) -> PipelineConfig:
    letters = {"table": "lake.shop.dead"}
    table = {"table": "lake.shop.a", **sink}
    return feed_config(dead_letters=letters, sink={"iceberg": table}, upkeep={"every": "1 second"})


class Jobs:
    """A stand-in for ``Maintenance`` that records its table, and checks that no other table is maintained meanwhile."""

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


def test_upkeep_maintains_one_table_after_the_other_including_new_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(enough=5)
    monkeypatch.setattr(schedule, "Maintenance", jobs)
    monkeypatch.setattr(schedule, "next_time", lambda settings, *, now: now)
    monkeypatch.setattr(schedule, "WAIT_SECONDS", 0.01)
    known = ["lake.shop.a"]

    def tables(_: object) -> list[str]:
        known.append(f"lake.shop.t{len(known)}")
        return list(known)

    monkeypatch.setattr(schedule.UpkeepBesideFeed, "tables", tables)
    monitor, spark = FeedMonitor("shop"), cast(SparkSession, object())
    run = FollowedRun(config=config(), monitor=monitor, connections=Connections(), spark=spark)
    with follow(run):
        assert not jobs.all_done.wait(0.1)  # Upkeep waits until the feed has begun.
        monitor.begin(sink="lake.shop.a", fence=None)
        assert jobs.all_done.wait(30)
    # The upkeep calls tables() once to find the time of the first round, and then in every round.
    assert jobs.looked[:5] == ["lake.shop.a", "lake.shop.t1", "lake.shop.t2", "lake.shop.a", "lake.shop.t1"]


def test_upkeep_maintains_the_tables_of_rows_history_and_dead_letters() -> None:
    with_history = config(mode="upsert", keys=["kafka_key"], history="lake.shop.a_history")
    assert with_history.iceberg_tables() == ("lake.shop.a", "lake.shop.a_history", "lake.shop.dead")
