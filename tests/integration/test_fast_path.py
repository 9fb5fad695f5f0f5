"""Fast path and general path give equal rows, dead letters, metrics and counts, and files that all readers can read."""

import io
import math
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow.parquet as parquet
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.feed.feed import FeedPath
from lakefeed.monitor.feed_monitor import FeedMonitor
from tests.support.feed import Feed

EDGES = {
    "type": "record",
    "name": "Edges",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "ratio", "type": ["null", "double"]},
        {"name": "share", "type": "float"},
        {"name": "text", "type": ["string", "null"]},
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "wide", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}},
        {"name": "raw", "type": "bytes"},
    ],
}
DECODE = {
    "avro": {"registry": "${SCHEMA_REGISTRY_URL}"},
    "metadata": ["partition", "offset", "key", "timestamp"],
    "on_null": "skip",
}
TEXTS = ["", "a", "é", "\U0001f600" * 20, "z" * 17, "huge " * 50_000]
RATIOS = [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, None, 1.5]


def edges(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": (1 << 63) - 1 if number == 7 else number,
            "ratio": RATIOS[number % len(RATIOS)],
            "share": struct.unpack("f", struct.pack("f", number / 7))[0],
            # One row has a huge text; most other texts occur only once.
            "text": TEXTS[-1] if number == 11 else None if number % 9 == 0 else f"{TEXTS[number % 5]}{number % 700}",
            "flag": number % 3 == 0,
            "small": -(1 << 31) if number == 5 else number % 40,
            "at": datetime(1, 1, 1, tzinfo=UTC) if number == 3 else datetime(2026, 1, 1, 0, 0, number % 60, tzinfo=UTC),
            "day": None if number % 2 else date(1 + number % 9998, 1, 1),
            "price": Decimal(number % 1000 - 500).scaleb(-2),
            "wide": Decimal("9" * 28 + "." + "9" * 10) if number == 2 else Decimal(-number),
            "raw": bytes([number % 256]) * (number % 20),
        }
        for number in range(count)
    ]


def landed(
    spark: SparkSession, feed: Feed, path: str, *, by: Sequence[str] = ("flag",), transforms: bool = True
) -> dict[str, Any]:
    """Run the feed on one path; return the results that must be equal on both paths."""
    name = "_".join((path, *by))
    table, letters = (f"{feed.catalog}.{feed.name}.{name}{kind}" for kind in ("", "_letters"))
    sql = f"SELECT *, CAST(small AS BIGINT) * 2 AS twice FROM {feed.name}_{name} WHERE small <> 13"
    pipeline = feed.pipeline(
        name=f"{feed.name}_{name}",
        decode=DECODE,
        fast_path=path,
        dead_letters={"table": letters},
        sink={"iceberg": {"table": table, "partition_by": list(by)}},
        checkpoint=f"{feed.checkpoint}-{name}",
        **({"transform": {"sql": sql}} if transforms else {}),
    )
    summary = pipeline.run(spark=spark, once=True)
    files = spark.table(f"{table}.files").selectExpr(
        *(["partition"] if by else []),
        "record_count",
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
    )
    snapshot = open_table(table, connections=feed.connections).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return {
        "rows": sorted(row.text for row in spark.table(table).selectExpr("to_json(struct(*)) AS text").collect()),
        "files": sorted(map(repr, files.collect())),
        "letters": sorted(map(repr, spark.table(letters).select("partition", "offset", "reason").collect())),
        "counts": snapshot.summary["lakefeed.counts"],
        "summary": (summary.records, summary.rows, summary.dead_letters, summary.skipped, summary.files),
    }


def test_both_paths_land_the_same_rows_and_all_engines_read_them(lake: SparkSession, feed: Feed) -> None:
    any_time = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    Topics(feed.stack.bootstrap_servers).create(feed.topic, partitions=2, config=any_time)
    values: list[bytes | None] = [*feed.avro(edges(3_000), schema=EDGES)]
    values[40:40] = [None, b"", b"no header", b"\x00\x00\x00\xff\xffunknown", values[0][:-1] if values[0] else None]
    feed.send(values)
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers})
    # A timestamp in nanoseconds is out of range.
    producer.produce(feed.topic, values[0], None, timestamp=1_700_000_000_000_000_000)
    assert producer.flush(30) == 0
    fast, general = landed(lake, feed, "auto"), landed(lake, feed, "off")
    assert fast == general
    assert fast["summary"][:4] == (3_006, len(fast["rows"]), 5, 1)
    assert any("out of range" in letter for letter in fast["letters"])
    table = open_table(f"{feed.catalog}.{feed.name}.auto_flag", connections=feed.connections)
    arrow = table.scan().to_arrow()  # pyiceberg reads with pyarrow.
    rows = lake.table(f"{feed.catalog}.{feed.name}.auto_flag")
    total = rows.selectExpr(
        "count(*)", "sum(small)", "sum(length(text))", "sum(price)", "count_if(isnan(ratio))"
    ).first()
    with duckdb.connect() as connection:
        connection.register("arrow", arrow)
        query = "SELECT count(*), sum(small), sum(length(text)), sum(price), count_if(isnan(ratio)) FROM arrow"
        assert tuple(total or ()) == connection.execute(query).fetchone()
    assert arrow.num_rows == len(fast["rows"])
    files = [task.file.file_path for task in table.scan().plan_files()]
    for number, path in enumerate(files):
        copy = feed.folder / f"{number}.parquet"
        copy.write_bytes(table.io.new_input(path).open().read())
        assert parquet.read_metadata(copy).metadata[b"lakefeed.encoder"] == b"columns"
    with duckdb.connect() as connection:
        query = f"SELECT count(*), sum(small), max(id), sum(twice) FROM '{feed.folder}/*.parquet'"
        found = connection.execute(query).fetchone()
    assert found == tuple(rows.selectExpr("count(*)", "sum(small)", "max(id)", "sum(twice)").first() or ())


CHANGE = {
    "type": "record",
    "name": "Change",
    "fields": [
        {"name": "city", "type": ["null", "string"]},
        {"name": "id", "type": ["null", "long"]},
        {"name": "op", "type": ["null", "string"]},
        *({"name": f"c{at}", "type": ["null", "double" if at % 2 else "string"]} for at in range(110)),
    ],
}


@pytest.mark.parametrize("on_delete", ["remove", "mark"])
def test_both_paths_upsert_the_same_rows(lake: SparkSession, feed: Feed, on_delete: str) -> None:
    """The rows have more columns than Spark compiles code for, and the batches change, delete and repeat keys."""
    feed.create_topic(partitions=1)
    changes = [
        {
            "city": None if number % 7 == 0 else f"city {number}",
            "id": None if number in (20, 90) else number * 37 % 60,
            "op": [None, "u", "d", "D"][number % 4],
            **{f"c{at}": None if at % 3 else number / 3 if at % 2 else f"{number}" for at in range(110)},
        }
        for number in range(150)
    ]
    values: list[bytes | None] = [*feed.avro(changes, schema=CHANGE)]
    values[40:40] = [None, b"no header"]
    found = {}
    for path in ("auto", "off"):
        table = f"{feed.table}_{path}"
        pipeline = feed.pipeline(
            name=f"{feed.name}_{path}",
            source=feed.source(max_records_per_batch=60),
            decode={"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["timestamp"], "on_null": "skip"},
            fast_path=path,
            dead_letters={"table": f"{table}_letters"},
            sink={
                "iceberg": {
                    "table": table,
                    "mode": "upsert",
                    "keys": ["ID"],
                    "delete": {"column": "op", "equals": ["d"]},
                    "on_delete": on_delete,
                }
            },
            checkpoint=f"{feed.checkpoint}-{path}",
        )
        if path == "auto":
            feed.send(values)
            [planned] = pipeline.plan(spark=lake).tables
            assert planned.path is not None
            assert planned.path.reader == "lakefeed's, which decodes each record as it reads it"
        summary = pipeline.run(spark=lake, once=True)
        texts = lake.table(table).selectExpr("to_json(struct(*)) AS text").collect()
        letters = lake.table(f"{table}_letters").select("partition", "offset", "reason").collect()
        found[path] = (
            sorted(row.text for row in texts),
            sorted(map(repr, letters)),
            (summary.records, summary.rows, summary.dead_letters, summary.skipped, summary.batches),
        )
        assert pipeline.verify(deep=True).faults == ()
    assert found["auto"] == found["off"]
    assert found["auto"][2][2:4] == (3, 1)
    assert any("the key column ID is null" in letter for letter in found["auto"][1])


def write_plans(spark: SparkSession, table: str) -> list[str]:
    """Return the physical plans of the table's appends, from Spark's list of executions."""
    session: Any = spark
    executions = session._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(at).physicalPlanDescription() for at in range(executions.size())]
    return [plan.partition("\n\n")[0] for plan in plans if "AppendData" in plan and table in plan]


def test_without_a_transform_the_writer_gets_the_readers_rows_uncopied_and_unchanged(
    lake: SparkSession, feed: Feed
) -> None:
    feed.create_topic(partitions=2)
    feed.send(feed.avro(edges(3_000), schema=EDGES))
    for by in ((), ("flag",)):
        fast, general = (landed(lake, feed, path, by=by, transforms=False) for path in ("auto", "off"))
        assert fast == general
    [flat, _, partitioned, _] = write_plans(lake, feed.name)
    assert "BatchScan decoded records" in flat
    assert "Project" not in flat
    # For a partitioned table Spark copies the rows, because the shuffle requires copies.
    assert "Project" in partitioned


def parquet_files(spark: SparkSession, feed: Feed, path: str) -> tuple[list[str], dict[str, list[Any]], int]:
    """Land the topic as Parquet on one path; return rows, footers by folder, and the number of files of our encoder."""
    folder = f"s3a://{feed.stack.bucket}/{feed.name}/{path}"
    sql = (
        "SELECT *, named_struct('text', text, 'at', at) AS both, "
        "transform(sequence(0, small % 4), n -> n * ratio) AS several, map(text, price) AS prices "
        f"FROM {feed.name}_{path} WHERE small BETWEEN 0 AND 30 AND text IS NOT NULL"
    )
    pipeline = feed.pipeline(
        name=f"{feed.name}_{path}",
        decode=DECODE,
        fast_path=path,
        transform={"sql": sql},
        sink={"parquet": {"path": folder, "partition_by": ["flag"]}},
        checkpoint=f"{feed.checkpoint}-{path}",
    )
    pipeline.run(spark=spark, once=True)
    rows = spark.read.parquet(folder).selectExpr("to_json(struct(*)) AS text").collect()
    found: dict[str, list[Any]] = {}
    ours = 0
    for file in spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(folder).collect():
        if "/_spark_metadata/" in file.path:
            continue
        footer = parquet.read_metadata(io.BytesIO(bytes(file.content)))
        metadata = dict(footer.metadata)
        ours += metadata.pop(b"lakefeed.encoder", None) is not None
        directory, _, name = file.path.removeprefix(folder).rpartition("/")
        # Drop the first line of the schema's text, because it contains a memory address.
        schema = str(footer.schema).partition("\n")[2]
        kept = (footer.num_rows, schema, sorted(metadata.items()))
        found.setdefault(directory, []).append((name.partition(".c000")[2], *kept))
    return sorted(row.text for row in rows), found, ours


def test_parquet_files_of_both_paths_differ_only_in_the_name_of_the_encoder(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(feed.avro(edges(2_000), schema=EDGES))
    fast, general = parquet_files(lake, feed, "auto"), parquet_files(lake, feed, "off")
    assert fast[:2] == general[:2]
    assert {folder: files[0][0] for folder, files in fast[1].items()} == {
        "/flag=true": ".zstd.parquet",
        "/flag=false": ".zstd.parquet",
    }
    assert (fast[2], general[2]) == (2, 0)


def test_plan_and_run_name_the_reader_and_encoder_and_the_reason_for_sparks(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send([b'{"id": 1, "tags": ["a"]}'])
    schema = {"json": {"schema_ddl": "id BIGINT, tags ARRAY<STRING>"}}
    rule = {"known": {"rule": "id > 0"}}
    sink = {"iceberg": {"table": feed.table, "properties": {"write.parquet.page-version": "v2"}}}
    general = feed.pipeline(decode=schema, expect=rule, fast_path="auto", sink=sink)
    [planned] = general.plan(spark=lake).tables
    path = FeedPath(
        reader="lakefeed's; a separate step decodes the records (expect)",
        encoder="the sink's own (the table has the property write.parquet.page-version)",
    )
    assert planned.path == path
    shown: list[str] = []
    monitor = FeedMonitor(feed.name)
    monitor.show_path = shown.append
    general.run(spark=lake, once=True, monitor=monitor)
    assert shown == [str(path)]
    folder = f"s3a://{feed.stack.bucket}/{feed.name}/files"
    for block, encoder in (
        ({"parquet": {"path": folder}}, "lakefeed's, by columns"),
        (
            {"files": {"path": folder, "options": {"parquet.bloom.filter.enabled": "true"}}},
            "the sink's own (the option parquet.bloom.filter.enabled)",
        ),
        ({"files": {"path": folder, "format": "orc"}}, "the sink's own (lakefeed's encoder writes only Parquet files)"),
    ):
        other = feed.pipeline(decode=schema, sink=block, fast_path="auto", checkpoint=f"{feed.checkpoint}-files")
        [planned] = other.plan(spark=lake).tables
        assert planned.path is not None
        assert planned.path.encoder == encoder
