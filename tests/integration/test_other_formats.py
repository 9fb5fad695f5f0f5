"""Spark formats by name: Delta Lake is a sink and a source, with its jar from the block `spark:`."""

import json
from pathlib import Path
from typing import Any

import pytest

from lakefeed_local.stack import Endpoints
from tests.support.cli import lakefeed
from tests.support.feed import Feed

pytestmark = pytest.mark.slow

DELTA = {
    "spark.jars.packages": "io.delta:delta-spark_4.1_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def run(feed: Feed, file: Path) -> dict[str, Any]:
    done = lakefeed("run", file, "--once", "--output", "json", environment=feed.environment)
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def test_a_topic_lands_in_delta_and_another_feed_reads_delta_into_iceberg(stack: Endpoints, tmp_path: Path) -> None:
    feed, onward = Feed(stack, tmp_path), Feed(stack, tmp_path)
    path = f"s3a://{stack.bucket}/delta/{feed.name}"
    feed.create_topic(partitions=2)
    into = feed.write_file(sink={"format": {"name": "delta", "path": path}}, spark=DELTA)
    document = json.loads(
        onward.write_file(source={"format": {"name": "delta", "path": path}}, spark=DELTA).read_text()
    )
    del document["decode"]
    out_of = tmp_path / f"{onward.name}.yaml"
    out_of.write_text(json.dumps(document))

    for first in (0, 50):
        feed.send(feed.avro({"id": number, "zone": f"z{number % 5}"} for number in range(first, first + 50)))
        assert run(feed, into)["rows"] == 50
        run(onward, out_of)
        assert sorted(each["id"] for each in onward.rows()) == list(range(first + 50))


def test_in_delta_a_changed_result_replaces_the_previous_result(stack: Endpoints, tmp_path: Path) -> None:
    feed = Feed(stack, tmp_path)
    path = f"s3a://{stack.bucket}/delta/{feed.name}"
    feed.create_topic(partitions=2)
    sql = f"SELECT zone, count(*) AS trips FROM {feed.name} GROUP BY zone"
    file = feed.write_file(
        sink={"format": {"name": "delta", "path": path}}, spark=DELTA, transform={"sql": sql, "output_mode": "complete"}
    )
    for _ in range(2):
        feed.send(feed.avro({"id": number, "zone": f"z{number % 5}"} for number in range(50)))
        assert run(feed, file)["rows"] == 5
    onward = Feed(stack, tmp_path)
    document = json.loads(onward.write_file(spark=DELTA).read_text())
    del document["decode"]
    document["source"] = {"format": {"name": "delta", "path": path}}
    out_of = tmp_path / f"{onward.name}.yaml"
    out_of.write_text(json.dumps(document))
    run(onward, out_of)
    assert {each["zone"]: each["trips"] for each in onward.rows()} == {f"z{number}": 20 for number in range(5)}
