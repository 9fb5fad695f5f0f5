"""A million rows land in each sink, every row once. ``packages/jdbc/tests`` tests databases."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.support.feed import Feed
from tests.support.sink_cases import SEARCH, iceberg, index_of, orc, out, path, topic

COUNT = 1_000_000
ROWS = "SELECT id, CAST(id % 7 AS STRING) AS zone, kafka_topic, kafka_partition, kafka_offset FROM {name}"
CHANGES = "SELECT *, CAST(id % 7 AS STRING) AS zone FROM {name}"
GROUPS = "SELECT id % 1000 AS id, count(*) AS hits FROM {name} GROUP BY 1"
Block = Callable[[Feed], dict[str, Any]]
Read = Callable[[Feed, SparkSession], DataFrame]


def of_table(feed: Feed, lake: SparkSession) -> DataFrame:
    return lake.table(feed.table)


def of_files(form: str) -> Read:
    def read(feed: Feed, lake: SparkSession) -> DataFrame:
        reader = lake.read.format(form)
        if form == "json":
            reader = reader.schema("id BIGINT, zone STRING")
        return (reader.option("header", "true") if form == "csv" else reader).load(path(feed))

    return read


def files(form: str) -> Block:
    return lambda feed: {"files": {"path": path(feed), "format": form, "partition_by": ["zone"]}}


def of_topic(feed: Feed, lake: SparkSession) -> DataFrame:
    reader = lake.read.format("kafka").option("kafka.bootstrap.servers", feed.stack.bootstrap_servers)
    row = "from_json(CAST(value AS STRING), 'id BIGINT, hits BIGINT') AS row"
    records = reader.option("subscribe", out(feed)).load().selectExpr(row, "partition", "offset")
    return records.selectExpr("row.*", "partition", "offset")


def of_index(feed: Feed, lake: SparkSession) -> DataFrame:
    documents = feed.folder / "documents.jsonl"
    with documents.open("w") as file:
        file.writelines(f"{json.dumps(each)}\n" for each in SEARCH[feed.name].read_all(feed.name))
    return lake.read.json(str(documents))


CASES: dict[str, tuple[Block, Read]] = {
    "iceberg-append": (iceberg(), of_table),
    "iceberg-upsert": (iceberg(mode="upsert", keys=["id"]), of_table),
    "iceberg-update": (iceberg(mode="upsert", keys=["id"]), of_table),
    "iceberg-complete": (iceberg(mode="overwrite"), of_table),
    "parquet": (lambda feed: {"parquet": {"path": path(feed)}}, of_files("parquet")),
    **{f"files-{form}": (files(form), of_files(form)) for form in ("parquet", "orc", "avro", "json", "csv")},
    "format-orc": (orc, of_files("orc")),
    "kafka-append": (topic(), of_topic),
    "kafka-update": (topic(key="id"), of_topic),
    "elasticsearch-append": (index_of(), of_index),
    "elasticsearch-upsert": (index_of(mode="upsert", keys=["id"]), of_index),
    "elasticsearch-update": (index_of(mode="upsert", keys=["id"]), of_index),
    "kafka-complete": (topic(key="id"), of_topic),
}
"""The block of each sink, and a function that reads its rows. The output modes update and complete group the rows."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_a_million_rows_land_once(feed: Feed, lake: SparkSession, name: str, request: pytest.FixtureRequest) -> None:
    (sink, read), brokers = CASES[name], feed.stack.bootstrap_servers
    mode = next((mode for mode in ("update", "complete") if name.endswith(mode)), "append")
    if name.startswith("elasticsearch"):
        SEARCH[feed.name] = request.getfixturevalue("search")
    feed.create_topic(partitions=4)
    lake.sql(f"SELECT to_json(named_struct('id', id)) AS value FROM range({COUNT})").write.format("kafka").option(
        "kafka.bootstrap.servers", brokers
    ).option("topic", feed.topic).save()
    sql = CHANGES if name.endswith("-upsert") else ROWS if mode == "append" else GROUPS
    pipeline = feed.pipeline(
        source=feed.source(max_records_per_batch=COUNT // 4),
        decode={"json": {"schema_ddl": "id BIGINT"}, "metadata": ["topic", "partition", "offset"]},
        transform={"sql": sql.format(name=feed.name), "output_mode": mode},
        sink=sink(feed),
    )
    summary = pipeline.run(spark=lake, once=True)
    print(f"\n{name}: {summary.records / summary.seconds:,.0f} records/s in {summary.batches} batches")
    assert (summary.records, summary.repeated) == (COUNT, 0)
    found = read(feed, lake)
    if mode != "append":
        if "kafka" in name:
            found = found.groupBy("id").agg(sf.max_by("hits", "offset").alias("hits"))
        [total] = found.agg(sf.count("*").alias("groups"), sf.min("hits").alias("least"), sf.sum("hits")).collect()
        assert tuple(total) == (1000, 1000, COUNT)
        return
    sums = (sf.count("*"), sf.count_distinct("id"), sf.sum(sf.col("id").cast("bigint")))
    [total] = found.agg(*sums).collect()
    assert tuple(total) == (COUNT, COUNT, COUNT * (COUNT - 1) // 2)
