"""OpenLineage events of runs on real servers are valid, and have the table's columns and number of rows."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import LakefeedError
from tests.support.feed import Feed
from tests.support.openlineage import problems, server

SCHEMA = "id BIGINT, at STRUCT<zone: STRING, tags: ARRAY<STRING>>"


def blocks(feed: Feed, url: str) -> dict[str, Any]:
    return {
        "decode": {"json": {"schema_ddl": SCHEMA}},
        "dead_letters": {"table": f"lake.{feed.name}.letters"},
        "lineage": {"url": url, "namespace": "tests", "every": "1 second"},
    }


def test_the_events_of_a_run_have_the_datasets_columns_and_row_counts(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([*(json.dumps({"id": number}).encode() for number in range(50)), b"poison"])
    with server() as (url, events, _):
        feed.pipeline(**blocks(feed, url)).run(spark=lake, once=True)
    assert [problems(event) for event in events] == [[]] * len(events)
    start, *_, end = events
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert end["inputs"][0]["namespace"] == f"kafka://{feed.stack.bootstrap_servers}"
    assert end["inputs"][0]["name"] == feed.topic
    assert end["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 51
    rows, letters = end["outputs"]
    table = open_table(feed.table, connections=feed.connections)
    assert table.location().replace("s3a://", "s3://") == f"{rows['namespace']}/{rows['name']}"
    assert rows["outputFacets"]["outputStatistics"]["rowCount"] == 50
    assert [(field["name"], field["type"]) for field in rows["facets"]["schema"]["fields"]] == [
        ("id", "long"),
        ("at", "struct"),
    ]
    assert letters["name"].endswith(f"{feed.name}/letters")


def test_the_last_event_of_a_failed_run_has_the_error(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([b"poison"])
    with server() as (url, events, _):
        settings = {name: block for name, block in blocks(feed, url).items() if name != "dead_letters"}
        with pytest.raises(LakefeedError) as failure:
            feed.pipeline(**settings).run(spark=lake, once=True)
    assert [event["eventType"] for event in events][-1] == "FAIL"
    assert [problems(event) for event in events] == [[]] * len(events)
    message = events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message.startswith(type(failure.value).__name__)
