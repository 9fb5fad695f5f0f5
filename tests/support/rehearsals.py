"""A feed whose records have all possible outcomes, for tests of rehearsals."""

import json
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from lakefeed.clients.kafka.topics import Topics
from lakefeed.pipeline import Pipeline
from lakefeed_repair.rehearsal import Rehearsal
from tests.support.feed import Feed

DDL = "id BIGINT, zone STRING, fare DECIMAL(10,2), at TIMESTAMP, ms BIGINT, note STRING, tags MAP<STRING, STRING>"
KEPT = ["topic", "partition", "offset"]
POSITIVE = {"positive": {"rule": "fare >= 0", "on_violation": "dead_letter"}}


def sql(feed: Feed, columns: str = "* EXCEPT (ms), timestamp_millis(ms) AS sent", rest: str = "") -> dict[str, str]:
    return {"sql": f"SELECT {columns} FROM {feed.name} {rest}"}


def decode(ddl: str = DDL, **more: Any) -> dict[str, Any]:
    block = {"json": {"schema_ddl": ddl}, "metadata": KEPT, "on_null": "skip", "on_bad_timestamp": "error"}
    return {**block, **more}


def blocks(feed: Feed, *, size: int = 20, **more: Any) -> dict[str, Any]:
    own = {
        "source": feed.source(max_records_per_batch=size, monitoring_group=f"{feed.name}-group"),
        "decode": decode(),
        "expect": POSITIVE,
        "dead_letters": {"table": f"lake.{feed.name}.dead"},
        "transform": sql(feed),
    }
    return {**own, **more}


def record(number: int, **more: Any) -> bytes:
    values = {"id": number, "zone": f"Zone {number % 3}", "fare": number - 2 + 0.25, "at": "2026-01-01T00:00:00Z"}
    tags = {"a": "1", "b": str(number)}
    return json.dumps({**values, "ms": 1767225600000 + number, "note": "", "tags": tags, **more}).encode()


def land(lake: SparkSession, feed: Feed, **more: Any) -> Pipeline:
    """Land 41 records: two have a negative fare, one a bad timestamp, one is broken, and one is null."""
    any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    Topics(feed.stack.bootstrap_servers).create(feed.topic, partitions=2, config=any_time)
    feed.send([record(number) for number in range(18)], partition=0)
    feed.send([*(record(number) for number in range(18, 37)), record(37, more=1), b"{", None], partition=1)
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers})
    producer.produce(feed.topic, record(38), partition=1, timestamp=1767225600000000000)
    producer.flush(30)
    pipeline = feed.pipeline(**blocks(feed, **more))
    pipeline.run(spark=lake, once=True)
    return pipeline


def shown(done: Rehearsal) -> dict[str, str]:
    """Return the texts of the differences by name; texts of the same name are joined."""
    texts: dict[str, list[str]] = {}
    for each in done.differences:
        texts.setdefault(each.name, []).append(each.what)
    return {name: "; ".join(each) for name, each in texts.items()}


def iceberg(feed: Feed, **more: Any) -> dict[str, Any]:
    return {"iceberg": {"table": feed.table, **more}}
