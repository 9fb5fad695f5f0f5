"""The examples of ``examples/`` do on real servers what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakefeed.dataframes import read_topic
from lakefeed.local import Endpoints
from lakefeed.pipeline import Pipeline
from tests.feed import Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
HITS = [("94105", "one", 3), ("94105", "one", 6), ("94105", "two", 8), ("10001", "one", 8)]


@pytest.fixture
def feed(stack: Endpoints, tmp_path: Path) -> Feed:
    made = Feed(stack, tmp_path)
    made.create_topic(partitions=1)
    return made


def example(feed: Feed, name: str, *overrides: str) -> Pipeline:
    topic = f'source.kafka.topics=["{feed.topic}"]'
    return Pipeline.from_file(EXAMPLES / name, overrides=[topic, *overrides], environment=feed.environment)


def hits() -> list[bytes]:
    return [
        json.dumps({"zip": zip_code, "isp": isp, "hittime": f"2024-01-01T12:{minute:02}:00Z"}).encode()
        for zip_code, isp, minute in HITS
    ]


def test_word_count(feed: Feed, lake: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    feed.send([b"The quick fox", b"the lazy dog, the end"])
    example(feed, "word_count/pipeline.yaml").run(spark=lake, once=True)
    shown = [line.strip("|").split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [tuple(each.strip() for each in row) for row in shown][:3] == [("word", "count"), ("the", "3"), ("dog", "1")]


def test_isp_hits(feed: Feed, lake: SparkSession) -> None:
    feed.send(hits())
    checkpoint = f"checkpoint={feed.checkpoint}"
    job = example(feed, "isp_hits/pipeline.yaml", f"sink.iceberg.table={feed.table}", checkpoint)
    job.run(spark=lake, once=True)
    found = {(f"{each['begins']:%H:%M}", each["zip"], each["isp"]): each["hits"] for each in feed.rows()}
    assert found == {
        ("11:57", "94105", "one"): 2,
        ("12:02", "94105", "one"): 2,
        ("12:02", "94105", "two"): 1,
        ("12:07", "94105", "two"): 1,
        ("12:02", "10001", "one"): 1,
        ("12:07", "10001", "one"): 1,
    }
    assert lake.table("hits_now").count() == 6
    assert job.verify().faults == ()


@pytest.mark.slow
def test_hits_into_topics(feed: Feed, lake: SparkSession) -> None:
    feed.send(hits())
    read = {}
    for mode, form in (("update", "avro"), ("complete", "json")):
        out = f"{feed.topic}-{mode}"
        feed.create_topic(topic=out, partitions=2)
        checkpoint = f"checkpoint={feed.checkpoint}-{mode}"
        job = example(feed, f"isp_hits/to_kafka_{mode}.yaml", f"sink.kafka.topic={out}", checkpoint)
        assert job.run(spark=lake, once=True).repeated == 0
        decode = {"avro": {"registry": feed.stack.schema_registry_url}}
        if form == "json":
            decode = {"json": {"schema_ddl": "zip STRING, hits BIGINT"}}
        servers = feed.stack.bootstrap_servers
        read[mode] = read_topic(lake, out, stream=False, decode=decode, bootstrap_servers=servers).collect()
    assert {each.zip: each.hits for each in read["complete"]} == {"94105": 3, "10001": 1}
    assert {(each.zip, each.isp): each.hits for each in read["update"] if each.begins.minute == 2} == {
        ("94105", "one"): 2,
        ("94105", "two"): 1,
        ("10001", "one"): 1,
    }


def test_hits_in_files_by_zip_and_day(feed: Feed, lake: SparkSession) -> None:
    feed.send(hits())
    path, checkpoint = f"sink.files.path=s3a://{feed.stack.bucket}/{feed.name}", f"checkpoint={feed.checkpoint}"
    table = f"sink.files.table={feed.name}_hits"
    example(feed, "isp_hits/by_zip_and_day.yaml", path, checkpoint, table).run(spark=lake, once=True)
    assert lake.table(f"{feed.name}_hits").filter("zip = '94105' AND day = '2024-01-01'").count() == 3
