"""The graph of a pipeline with its rates, and the cost of its S3 requests."""

from typing import Any

import pytest

from lakefeed.config.connections import Connections
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.s3_requests import BatchRequests
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import OffsetRange
from lakefeed_dashboard.details.feed_details import FeedDetails, costs_of
from lakefeed_dashboard.details.graph import MOST_TOPICS, graph_of
from lakefeed_dashboard.settings import Tariff
from tests.support.clock import Clock
from tests.support.pipeline_text import feed_config


def monitor_with_batches(clock: Clock, count: int = 10, **figures: Any) -> FeedMonitor:
    """Return a monitor of `count` one-second batches, each with 10 records of clicks and 90 of hits."""
    monitor = FeedMonitor("hits", clock=clock)
    for number in range(count):
        clock.now += 1
        ranges = (OffsetRange("clicks", 0, number * 10, number * 10 + 10), OffsetRange("hits", 0, 0, 90))
        settings: dict[str, Any] = {
            "batch_id": number,
            "finished_at": clock.now,
            "seconds": 1.0,
            "records": 100,
            "rows": 50,
            "dead_letters": 1,
            "ranges": ranges,
            **figures,
        }
        monitor.finish(FinishedBatch(**settings))
    return monitor


def rates(graph: dict[str, Any]) -> dict[str, float | None]:
    return {node["id"]: node["rate"] for node in graph["nodes"]}


def test_the_graph_shows_the_path_of_the_records() -> None:
    feed = feed_config(
        source={"kafka": {"bootstrap_servers": "localhost:9092", "topics": ["clicks", "hits"]}},
        expect={"has_zip": {"rule": "zip IS NOT NULL", "on_violation": "dead_letter"}},
        dead_letters={"table": "lake.web.letters"},
        transform={
            "tables": {"places": {"table": "lake.web.places"}},
            "steps": {
                "known": {"sql": "SELECT h.* FROM hits h JOIN places USING (zip) -- not: other"},
                "scored": {"python": "scores:score"},
                "both": {"sql": "SELECT * FROM known UNION ALL SELECT * FROM scored"},
            },
        },
        sinks={"now": {"memory": {"view": "now"}}},
    )
    graph = graph_of(feed, FeedMonitor("hits"))
    assert [(node["id"], node["kind"], node["label"]) for node in graph["nodes"]] == [
        ("topic:clicks", "topic", "clicks"),
        ("topic:hits", "topic", "hits"),
        ("decode", "decode", "json"),
        ("expect", "expect", "has_zip"),
        ("dead_letters", "dead_letters", "lake.web.letters"),
        ("table:places", "table", "places"),
        ("step:known", "step", "known"),
        ("step:scored", "step", "scored"),
        ("step:both", "step", "both"),
        ("sink", "sink", "lake.web.hits"),
        ("sinks.now", "sink", "now: memory"),
    ]
    assert graph["edges"] == [
        ["topic:clicks", "decode"],
        ["topic:hits", "decode"],
        ["decode", "expect"],
        ["expect", "dead_letters"],
        ["expect", "step:known"],
        ["table:places", "step:known"],
        ["step:known", "step:scored"],
        ["step:known", "step:both"],
        ["step:scored", "step:both"],
        ["step:both", "sink"],
        ["step:both", "sinks.now"],
    ]
    assert set(rates(graph).values()) == {None}


def test_the_graph_shows_the_rates_of_the_last_minute() -> None:
    clock = Clock()
    monitor = monitor_with_batches(clock)
    monitor.observe_ends({("clicks", 0): 100, ("hits", 0): 900})
    found = rates(graph_of(feed_config(dead_letters={"topic": "letters"}), monitor))
    assert found == {
        "topic:clicks": pytest.approx(10),
        "topic:hits": pytest.approx(90),
        "decode": pytest.approx(100),
        "dead_letters": pytest.approx(1),
        "sink": pytest.approx(50),
    }


def test_the_graph_shows_the_first_30_topics() -> None:
    monitor = FeedMonitor("hits")
    monitor.observe_ends({(f"t{number:03}", 0): 1 for number in range(MOST_TOPICS + 5)})
    nodes = graph_of(feed_config(), monitor)["nodes"]
    assert nodes[MOST_TOPICS]["label"] == "5 more topics"


def test_costs_are_extrapolated_to_an_hour() -> None:
    clock = Clock()
    requests = BatchRequests(total=12, writes=8, reads=3, by_class={"data": 4, "metadata": 8})
    monitor = monitor_with_batches(clock, count=100, requests=requests)
    found = costs_of(monitor, Tariff.of("aws-us-east-1"))
    assert found["requests_per_batch"] == 12
    assert found["seconds"] == 100
    assert found["requests_per_hour"] == 12 * 3600
    assert (found["writes_per_hour"], found["reads_per_hour"]) == (8 * 3600, 3 * 3600)
    assert found["per_batch"] == pytest.approx((8 * 0.005 + 3 * 0.0004) / 1000, abs=1e-8)
    assert found["per_hour"] == pytest.approx(3600 * (8 * 0.005 + 3 * 0.0004) / 1000)
    assert found["by_class"] == {"data": 4, "metadata": 8}


def test_costs_have_no_price_without_a_tariff() -> None:
    monitor = monitor_with_batches(Clock(), requests=BatchRequests(total=12))
    found = costs_of(monitor, None)
    assert (found["currency"], found["per_batch"], found["per_hour"]) == (None, None, None)
    # The figures of ten seconds are extrapolated to an hour.
    assert found["requests_per_hour"] == 120 * 60


def test_costs_are_unknown_without_counted_requests() -> None:
    found = costs_of(monitor_with_batches(Clock()), Tariff.of("aws-us-east-1"))
    assert (found["requests_per_batch"], found["per_hour"]) == (None, None)


def test_feed_details_have_no_panels_without_a_spark_session() -> None:
    details = FeedDetails(
        feed_config(sink={"memory": {}}), FeedMonitor("hits"), connections=Connections.from_environment({})
    )
    assert details.documents["panels"]() == {"panels": []}
    assert details.documents["graph"]()["nodes"][0]["id"] == "topic:hits"
    assert details.documents["table"]()["tables"][0]["kind"] == "memory"
    assert details.documents["schemas"]()["schemas"] == []
    assert details.documents["dead-letters"]()["reasons"] == []
    assert details.documents["costs"]()["by_class"] == {}
    details.close()
