"""A million rows land in each sink, every one once. (Databases: ``tests/faults/test_jdbc.py``.)"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefeed.clients.kafka.topics import Topics
from tests.support.feed import Feed
from tests.support.servers.search import SearchServer

COUNT = 1_000_000
ROWS = "SELECT id, CAST(id % 7 AS STRING) AS zone, kafka_topic, kafka_partition, kafka_offset FROM {name}"
CHANGES = "SELECT *, CAST(id % 7 AS STRING) AS zone FROM {name}"
GROUPS = "SELECT id % 1000 AS id, count(*) AS hits FROM {name} GROUP BY 1"


def path(feed: Feed) -> str:
    return f"s3a://{feed.stack.bucket}/million/{feed.name}"


def out(feed: Feed) -> str:
    return f"{feed.topic}-out"


def of_table(feed: Feed, lake: SparkSession) -> DataFrame:
    return lake.table(feed.table)


def of_files(form: str) -> Callable[[Feed, SparkSession], DataFrame]:
    def read(feed: Feed, lake: SparkSession) -> DataFrame:
        reader = (
            lake.read.format(form).schema("id BIGINT, zone STRING") if form in ("json",) else lake.read.format(form)
        )
        return (reader.option("header", "true") if form == "csv" else reader).load(path(feed))

    return read


def of_topic(feed: Feed, lake: SparkSession) -> DataFrame:
    reader = lake.read.format("kafka").option("kafka.bootstrap.servers", feed.stack.bootstrap_servers)
    records = reader.option("subscribe", out(feed)).load()
    return records.selectExpr(
        "from_json(CAST(value AS STRING), 'id BIGINT, hits BIGINT') AS row", "partition", "offset"
    ).selectExpr("row.*", "partition", "offset")


SEARCH: dict[str, SearchServer] = {}
"""The search server of each feed that has one."""


def index(feed: Feed, **settings: Any) -> dict[str, Any]:
    return {"elasticsearch": {"url": SEARCH[feed.name].url, "index": feed.name, **settings}}


def of_index(feed: Feed, lake: SparkSession) -> DataFrame:
    path = feed.folder / "documents.jsonl"
    with path.open("w") as file:
        file.writelines(f"{json.dumps(each)}\n" for each in SEARCH[feed.name].read_all(feed.name))
    return lake.read.json(str(path))


@dataclass(frozen=True)
class Case:
    """A sink, and the way to read it.

    Attributes:
        sink: a function that returns its block.
        read: a function that returns the sink's rows, which have the column ``id``.
        mode: the output mode; all modes but append group the rows.
    """

    sink: Callable[[Feed], dict[str, Any]]
    read: Callable[[Feed, SparkSession], DataFrame]
    mode: str = "append"


def topic(feed: Feed, **settings: Any) -> dict[str, Any]:
    Topics(feed.stack.bootstrap_servers).create(out(feed), partitions=4)
    return {"kafka": {"topic": out(feed), **settings}}


CASES = {
    "iceberg-append": Case(lambda feed: {"iceberg": {"table": feed.table}}, of_table),
    "iceberg-upsert": Case(
        lambda feed: {"iceberg": {"table": feed.table, "mode": "upsert", "keys": ["id"]}},
        of_table,
    ),
    "iceberg-update": Case(
        lambda feed: {"iceberg": {"table": feed.table, "mode": "upsert", "keys": ["id"]}}, of_table, "update"
    ),
    "iceberg-complete": Case(
        lambda feed: {"iceberg": {"table": feed.table, "mode": "overwrite"}}, of_table, "complete"
    ),
    "parquet": Case(lambda feed: {"parquet": {"path": path(feed)}}, of_files("parquet")),
    **{
        f"files-{form}": Case(
            lambda feed, form=form: {"files": {"path": path(feed), "format": form, "partition_by": ["zone"]}},  # type: ignore[misc]
            of_files(form),
        )
        for form in ("parquet", "orc", "avro", "json", "csv")
    },
    "format-orc": Case(lambda feed: {"format": {"name": "orc", "path": path(feed)}}, of_files("orc")),
    "kafka-append": Case(topic, of_topic),
    "kafka-update": Case(lambda feed: topic(feed, key="id"), of_topic, "update"),
    "elasticsearch-append": Case(index, of_index),
    "elasticsearch-upsert": Case(lambda feed: index(feed, mode="upsert", keys=["id"]), of_index),
    "elasticsearch-update": Case(lambda feed: index(feed, mode="upsert", keys=["id"]), of_index, "update"),
    "kafka-complete": Case(lambda feed: topic(feed, key="id"), of_topic, "complete"),
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_a_million_rows(feed: Feed, lake: SparkSession, name: str, request: pytest.FixtureRequest) -> None:
    from pyspark.sql import functions as sf

    case, brokers = CASES[name], feed.stack.bootstrap_servers
    if name.startswith("elasticsearch"):
        SEARCH[feed.name] = request.getfixturevalue("search")
    feed.create_topic(partitions=4)
    lake.sql(f"SELECT to_json(named_struct('id', id)) AS value FROM range({COUNT})").write.format("kafka").option(
        "kafka.bootstrap.servers", brokers
    ).option("topic", feed.topic).save()
    sql = CHANGES if name.endswith("-upsert") else ROWS if case.mode == "append" else GROUPS
    pipeline = feed.pipeline(
        source={"kafka": {"bootstrap_servers": brokers, "topics": [feed.topic], "max_records_per_batch": COUNT // 4}},
        decode={"json": {"schema_ddl": "id BIGINT"}, "metadata": ["topic", "partition", "offset"]},
        transform={
            "sql": sql.format(name=feed.name),
            "output_mode": case.mode,
        },
        sink=case.sink(feed),
    )
    summary = pipeline.run(spark=lake, once=True)
    print(f"\n{name}: {summary.records / summary.seconds:,.0f} records/s in {summary.batches} batches")
    assert (summary.records, summary.repeated) == (COUNT, 0)
    found = case.read(feed, lake)
    if case.mode != "append":
        if "kafka" in name:
            found = found.groupBy("id").agg(sf.max_by("hits", "offset").alias("hits"))
        [total] = found.agg(sf.count("*").alias("groups"), sf.min("hits").alias("least"), sf.sum("hits")).collect()
        assert tuple(total) == (1000, 1000, COUNT)
        return
    sums = (sf.count("*"), sf.count_distinct("id"), sf.sum(sf.col("id").cast("bigint")))
    [total] = found.agg(*sums).collect()
    assert tuple(total) == (COUNT, COUNT, COUNT * (COUNT - 1) // 2)
