"""A driver of a query with state is killed during a batch: each result lands once, and counts each record once."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakefeed.pipeline import Pipeline
from tests.support.cli import lakefeed
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.faults.kill_points import KillPoint
from tests.support.faults.landed import Landing, assert_killed
from tests.support.faults.s3_fault_proxy import FaultProxy
from tests.support.feed import Feed

START = datetime(2024, 1, 1, 12, tzinfo=UTC)
POINTS = (
    KillPoint("iceberg", "data file", "after"),
    KillPoint("iceberg", "table metadata", "after"),
    KillPoint("iceberg", "table metadata", "then"),
    KillPoint("iceberg", "commits entry", "before"),
)


def settings(feed: Feed) -> dict[str, Any]:
    windows = "GROUP BY window(at, '10 minutes'), zip"
    sql = f"SELECT window.start AS begins, zip, count(*) AS hits FROM {feed.name} {windows}"
    return {
        "source": feed.source(max_records_per_batch=40),
        "decode": {"json": {"schema_ddl": "zip STRING, at TIMESTAMP"}},
        "transform": {"sql": sql, "watermark": {"column": "at", "delay": "5 minutes"}},
        "spark": {"spark.sql.shuffle.partitions": 2},
    }


def killed_and_started_again(feed: Feed, file: Path, stack_proxy: FaultProxy, point: KillPoint) -> None:
    stack_proxy.heal()
    fault = point.arm(stack_proxy, Landing(feed, "iceberg"), batch=1)
    assert_killed(feed, file, stack_proxy, fault)

    lakefeed("run", file, "--once", environment={**feed.environment, **SHORT_LIVED}, timeout=500)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_each_window_lands_once_after_the_feed_was_killed(
    feed: Feed, stack_proxy: FaultProxy, point: KillPoint
) -> None:
    feed.create_topic(partitions=1)
    events = [(START + timedelta(minutes=number), f"{number % 3}") for number in range(120)]
    feed.send([json.dumps({"zip": zip_code, "at": at.isoformat()}).encode() for at, zip_code in events])
    file = feed.write_file(**settings(feed))

    killed_and_started_again(feed, file, stack_proxy, point)
    closed = START + timedelta(minutes=119 - 5)
    expected: dict[tuple[datetime, str], int] = {}
    for at, zip_code in events:
        begins = at - timedelta(minutes=at.minute % 10)
        if begins + timedelta(minutes=10) <= closed:
            expected[begins, zip_code] = expected.get((begins, zip_code), 0) + 1
    rows = feed.rows()
    assert {(each["begins"], each["zip"]): each["hits"] for each in rows} == expected
    assert len(rows) == len(expected)
    assert Pipeline.from_file(file, environment=feed.environment).verify().faults == ()


RUNNING = """
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Counter(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n BIGINT")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.seen.get() or (0,))[0]
        for _ in rows:
            n += 1
            yield Row(zip=key[0], n=n)
        self.seen.update((n,))

    def close(self):
        pass


def counted(rows):
    return rows.groupBy("zip").transformWithState(
        Counter(), outputStructType="zip STRING, n BIGINT", outputMode="Append", timeMode="None"
    )
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", [POINTS[1], POINTS[3]], ids=str)
def test_python_state_counts_each_record_once_after_the_feed_was_killed(
    feed: Feed, stack_proxy: FaultProxy, point: KillPoint
) -> None:
    feed.create_topic(partitions=1)
    feed.send([json.dumps({"zip": f"{number % 3}", "at": START.isoformat()}).encode() for number in range(120)])
    (feed.folder / "running_count.py").write_text(RUNNING)
    counted = {"steps": {"counted": {"python": "running_count:counted"}}}
    file = feed.write_file(**{**settings(feed), "transform": counted})

    killed_and_started_again(feed, file, stack_proxy, point)
    found = sorted((each["zip"], each["n"]) for each in feed.rows())
    assert found == [(f"{zip_code}", n) for zip_code in range(3) for n in range(1, 41)]
    assert Pipeline.from_file(file, environment=feed.environment).verify().faults == ()


def joined(feed: Feed) -> dict[str, Any]:
    clicks, orders = f"{feed.name}-clicks", f"{feed.name}-orders"
    late = {"column": "at", "delay": "5 minutes"}
    within = "orders.at BETWEEN clicks.at AND clicks.at + INTERVAL 30 MINUTES"
    common = settings(feed)
    return {
        **common,
        "source": {"kafka": {**common["source"]["kafka"], "topics": [clicks, orders]}},
        "decode": {"json": {"schema_ddl": "id BIGINT, at TIMESTAMP"}},
        "transform": {
            "streams": {"clicks": {"topic": clicks, "watermark": late}, "orders": {"topic": orders, "watermark": late}},
            "sql": "SELECT clicks.id, orders.at AS ordered FROM clicks LEFT JOIN orders "
            f"ON clicks.id = orders.id AND {within}",
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize("point", [POINTS[0], POINTS[1], POINTS[3]], ids=str)
def test_each_joined_pair_lands_once_after_the_feed_was_killed(
    feed: Feed, stack_proxy: FaultProxy, point: KillPoint
) -> None:
    blocks = joined(feed)
    clicks, orders = blocks["source"]["kafka"]["topics"]
    # Every third click has no order. The last click is a day later: its watermark closes all earlier windows.
    clicked = [(number, START + timedelta(minutes=number)) for number in range(120)] + [
        (120, START + timedelta(days=1))
    ]
    ordered = {number: at + timedelta(minutes=20) for number, at in clicked if number % 3 or number == 120}
    for topic, events in ((clicks, clicked), (orders, list(ordered.items()))):
        feed.create_topic(partitions=1, topic=topic)
        feed.send([json.dumps({"id": number, "at": at.isoformat()}).encode() for number, at in events], topic=topic)
    file = feed.write_file(**blocks)

    killed_and_started_again(feed, file, stack_proxy, point)
    rows = feed.rows()
    assert {each["id"]: each["ordered"] for each in rows} == {number: ordered.get(number) for number, _ in clicked}
    assert len(rows) == len(clicked)
    assert Pipeline.from_file(file, environment=feed.environment).verify().faults == ()
