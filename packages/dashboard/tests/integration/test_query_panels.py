"""Query panels and details of a feed on real servers follow the records and add no S3 requests to batches."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from lakefeed.feed.s3_requests import s3_requests
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.pipeline import Pipeline
from lakefeed_dashboard.details.feed_details import FeedDetails
from lakefeed_dashboard.settings import QueryPanel
from tests.support.feed import Feed, until

ENDLESS = "SELECT count(*) AS n FROM range(1000000000000000)"


def hits(zip_code: str, count: int) -> list[bytes]:
    return [json.dumps({"zip": zip_code, "id": number}).encode() for number in range(count)]


def panel(name: str, **settings: Any) -> QueryPanel:
    return QueryPanel.model_validate({"name": name, "every": "5 seconds", **settings})


def pipeline_of(feed: Feed, **blocks: Any) -> Pipeline:
    return feed.pipeline(
        decode={"json": {"schema_ddl": "zip STRING, id BIGINT"}},
        dead_letters={"table": f"lake.{feed.name}.letters"},
        sinks={"now": {"memory": {"view": f"{feed.name}_now"}}},
        **blocks,
    )


@contextmanager
def running(feed: Feed, spark: SparkSession, *panels: QueryPanel) -> Iterator[tuple[FeedMonitor, FeedDetails]]:
    """Run a feed in a thread until the block ends; yield its monitor and its details."""
    dashboard = {"panels": [panel.model_dump() for panel in panels], "tariff": "aws-us-east-1", "port": 0}
    pipeline, monitor, stop = pipeline_of(feed, dashboard=dashboard), FeedMonitor(feed.name), threading.Event()
    thread = threading.Thread(target=lambda: pipeline.run(spark=spark, stop=stop, monitor=monitor))
    details = FeedDetails(pipeline.config, monitor, spark, connections=pipeline.connections)
    thread.start()
    try:
        yield monitor, details
    finally:
        details.close()
        stop.set()
        thread.join(120)
    assert monitor.snapshot().state == "ended"


def shown(details: FeedDetails, name: str) -> dict[str, Any]:
    return next(each for each in details.documents["panels"]()["panels"] if each["name"] == name)


def batches_of(feed: Feed, monitor: FeedMonitor, count: int, *, look: Callable[[], object]) -> list[int]:
    """Send `count` batches one after the other, and call `look` in each batch; return the batches' S3 requests."""
    before = monitor.snapshot().totals.batches
    for number in range(count):
        feed.send(hits("10001", 10))
        expected = before + number + 1
        while monitor.snapshot().totals.batches < expected:
            look()
            time.sleep(0.1)
    return [batch.requests.total for batch in monitor.batches()[-count:] if batch.requests is not None]


def test_panels_and_details_show_new_records_without_s3_requests(lake: SparkSession, feed: Feed) -> None:
    view = f"{feed.name}_now"
    by_zip = panel(
        "by_zip", sql=f"SELECT zip, count(*) AS hits FROM {view} GROUP BY zip", chart="bar", x="zip", y="hits"
    )
    refused = panel("refused", sql="SELECT reflect('java.lang.System', 'getenv', 'AWS_SECRET_ACCESS_KEY')")
    feed.create_topic(partitions=1)
    feed.send([*hits("94105", 7), b"not json"])
    with running(feed, lake, by_zip, panel("rows", view=view, limit=3, every="1 second"), refused) as (
        monitor,
        details,
    ):
        until(lambda: monitor.snapshot().totals.batches == 1)
        until(lambda: shown(details, "by_zip")["rows"] == [["94105", 7]])
        feed.send(hits("10001", 5))
        until(lambda: sorted(shown(details, "by_zip")["rows"]) == [["10001", 5], ["94105", 7]])
        until(lambda: shown(details, "rows")["rows"])
        assert len(shown(details, "rows")["rows"]) == 3
        assert shown(details, "rows")["truncated"] is True
        assert shown(details, "refused")["error"].startswith("a panel may only read, but its SQL has reflect")
        assert shown(details, "refused")["rows"] == []

        requests = s3_requests(lake)
        table, letters, in_memory = details.documents["table"]()["tables"]
        schemas = details.documents["schemas"]()["schemas"]
        assert s3_requests(lake) == requests
        assert (table["name"], table["rows"], table["error"]) == (feed.table, 12, None)
        assert table["files"] == len(table["snapshots"]) == 2
        assert [each["feed_batch"] for each in table["snapshots"]] == [0, 1]
        assert letters["rows"] == 1
        assert (in_memory["kind"], in_memory["files"]) == ("memory", None)
        assert [[field["name"] for field in schema["fields"]] for schema in schemas] == [["zip", "id"]]

        found = details.documents["dead-letters"]()
        assert s3_requests(lake) == requests
        [reason] = found["reasons"]
        assert (reason["count"], reason["samples"][0]["value"], found["replayable"]) == (1, "not json", False)
        rates = {node["id"]: node["rate"] for node in details.documents["graph"]()["nodes"]}
        assert rates["decode"] > rates["dead_letters"] > 0
        costs = details.documents["costs"]()
        assert costs["per_batch"] > 0
        assert costs["by_class"]["data"] >= 1


def test_panels_add_no_s3_requests_and_an_endless_query_delays_no_batch(lake: SparkSession, feed: Feed) -> None:
    view = f"{feed.name}_now"
    by_zip = panel("by_zip", sql=f"SELECT zip, count(*) AS hits FROM {view} GROUP BY zip")
    endless = panel("endless", sql=ENDLESS, time_limit="3 seconds")
    of_table = panel("of_table", sql=f"SELECT count(*) AS n FROM {feed.table}")
    feed.create_topic(partitions=1)
    feed.send(hits("10001", 10))
    with running(feed, lake, by_zip, endless, of_table) as (monitor, details):
        until(lambda: monitor.snapshot().totals.batches == 1)
        alone = batches_of(feed, monitor, 4, look=lambda: None)
        until(lambda: shown(details, "endless")["running"])
        during = len(monitor.batches())
        until(lambda: "cancelled" in (shown(details, "endless")["error"] or ""))
        feed.send(hits("10001", 10))
        until(lambda: len(monitor.batches()) > during)
        until(lambda: shown(details, "of_table")["rows"] == [[60]])
        assert "cancelled after 3 seconds" in shown(details, "endless")["error"]
    with running(feed, lake, by_zip, endless) as (monitor, details):
        watched = batches_of(feed, monitor, 5, look=details.documents["panels"])
        assert shown(details, "by_zip")["error"] is None
    assert set(watched[1:]) <= set(alone)
