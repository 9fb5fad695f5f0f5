"""The Python API reads topics into DataFrames, and writes DataFrames into tables."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakefeed as lf
from lakefeed.errors import CheckpointMismatch, ConfigError
from tests.support.feed import Feed, trips


@pytest.fixture
def sent(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Send 300 records to 3 partitions; return the feed. The environment variables name the stack's servers."""
    feed.export(monkeypatch)
    feed.create_topic(partitions=3)
    for partition in range(3):
        feed.send(feed.avro(trips(partition * 100, partition * 100 + 100)), partition=partition)
    return feed


def ids(rows: list[Any]) -> list[int]:
    return sorted(row["id"] for row in rows)


@pytest.mark.quick
def test_read_topic_returns_the_whole_topic(lake: SparkSession, sent: Feed) -> None:
    frame = lf.read_topic(lake, sent.topic, stream=False)
    assert not frame.isStreaming
    assert frame.columns == ["id", "zone", "kafka_partition", "kafka_offset"]
    assert ids(frame.collect()) == list(range(300))


def test_read_topic_returns_only_the_given_offset_ranges(lake: SparkSession, sent: Feed) -> None:
    ranges = [lf.OffsetRange(sent.topic, 0, 10, 20), lf.OffsetRange(sent.topic, 2, 0, 5)]
    frame = lf.read_topic(lake, sent.topic, ranges=ranges)
    assert ids(frame.collect()) == [*range(10, 20), *range(200, 205)]


@pytest.mark.quick
def test_write_table_resumes_a_stream_after_a_restart(lake: SparkSession, sent: Feed) -> None:
    def land() -> None:
        stream = lf.read_topic(lake, sent.topic, max_records_per_batch=100).where("id % 2 = 0")
        assert stream.isStreaming
        query = lf.write_table(
            stream,
            sent.table,
            checkpoint=sent.checkpoint,
            name=sent.name,
            trigger="available-now",
            partition_by=["bucket(2, id)"],
        )
        assert query is not None
        query.awaitTermination()

    land()
    sent.send(sent.avro(trips(300, 400)))
    land()
    assert ids(sent.rows()) == list(range(0, 400, 2))


def test_write_table_writes_a_batch_into_a_table(lake: SparkSession, sent: Feed) -> None:
    assert lf.write_table(lf.read_topic(lake, sent.topic, stream=False), sent.table) is None
    assert ids(sent.rows()) == list(range(300))


def test_read_topic_accepts_the_decode_names_of_the_pipeline_file(lake: SparkSession, sent: Feed) -> None:
    raw = lf.read_topic(lake, sent.topic, stream=False, decode="raw")
    assert raw.columns == ["value"]
    assert {bytes(row["value"])[0] for row in raw.collect()} == {0}


def test_wrong_arguments_are_refused(lake: SparkSession, sent: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="choose the records of a batch"):
        lf.read_topic(lake, sent.topic, stream=True, ranges=[lf.OffsetRange(sent.topic, 0, 0, 1)])
    with pytest.raises(ConfigError, match="exactly one of"):
        lf.read_topic(lake, sent.topic, decode={"metadata": ["offset"]})
    with pytest.raises(ConfigError, match="checkpoint"):
        lf.write_table(lf.read_topic(lake, sent.topic), sent.table)
    with pytest.raises(ConfigError, match=r"catalog\.namespace\.table"):
        lf.write_table(lf.read_topic(lake, sent.topic, stream=False), "rows")
    with pytest.raises(ConfigError, match="kafka"):
        lf.read_topic(lake, sent.topic, options={"kafka.max.pol.records": 1})


def test_a_checkpoint_of_another_feed_is_refused(lake: SparkSession, sent: Feed) -> None:
    query = lf.write_table(
        lf.read_topic(lake, sent.topic), sent.table, checkpoint=sent.checkpoint, trigger="available-now"
    )
    assert query is not None
    query.awaitTermination()
    with pytest.raises(CheckpointMismatch, match="belongs to feed"):
        lf.write_table(lf.read_topic(lake, sent.topic), f"{sent.table}_b", checkpoint=sent.checkpoint)


def test_every_partition_transform_accepts_extreme_values(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Null, NaN, infinity, and the first and the last date must not make the write of a partition fail."""
    feed.export(monkeypatch)
    values = {
        "bool": ("BOOLEAN", ["true", "false"], []),
        "int": ("INT", ["-2147483648", "2147483647"], ["bucket(4, {})", "truncate(10, {})"]),
        "long": ("BIGINT", [str(-(2**63)), str(2**63 - 1)], ["bucket(4, {})", "truncate(10, {})"]),
        "float": ("FLOAT", ["'NaN'", "'-Infinity'"], []),
        "double": ("DOUBLE", ["'NaN'", "'Infinity'"], []),
        "dec": ("DECIMAL(4, 2)", ["-99.99", "99.99"], ["bucket(4, {})"]),
        # The smallest value is -99.90, because -99.99 truncated to a multiple of 0.10 is -100.00: a digit too many.
        "low": ("DECIMAL(4, 2)", ["-99.90", "99.99"], ["truncate(10, {})"]),
        "text": ("STRING", ["''", "'a/b=c\\n \u20ac\U0001f600'"], ["bucket(4, {})", "truncate(1, {})"]),
        "bin": ("BINARY", ["X''", "X'00ff80'"], ["bucket(4, {})", "truncate(1, {})"]),
        "day": ("DATE", ["'0001-01-01'", "'9999-12-31'"], ["years({})", "months({})", "days({})", "bucket(4, {})"]),
    }
    times = [f"{each}({{}})" for each in ("years", "months", "days", "hours")] + ["bucket(4, {})"]
    limits = ["'0001-01-01T00:00:00{}'", "'9999-12-31T23:59:59.999999{}'"]
    values["at"] = ("TIMESTAMP", [each.format("Z") for each in limits], times)
    values["local"] = ("TIMESTAMP_NTZ", [each.format("") for each in limits], times)
    columns: dict[str, tuple[str, list[str]]] = {}
    transforms = []
    for name, (kind, limits, functions) in values.items():
        # Iceberg allows only one time transform per column, so each transform gets a column with the same values.
        for number, function in enumerate(["{}", *functions]):
            columns[f"{name}{number}"] = kind, limits
            transforms.append(function.format(f"{name}{number}"))
    rows = " UNION ALL ".join(
        "SELECT "
        + ", ".join(
            f"CAST({'NULL' if row is None else limits[row]} AS {kind}) AS {name}"
            for name, (kind, limits) in columns.items()
        )
        for row in (None, 0, 1)
    )
    lf.write_table(lake.sql(rows), feed.table, partition_by=transforms)
    read = lake.table(feed.table)
    assert read.exceptAll(lake.sql(rows)).count() == 0
    assert read.count() == 3
    found = [
        f"count_if({name} = CAST({limit} AS {kind}))" for name, (kind, limits) in columns.items() for limit in limits
    ]
    [counts] = read.selectExpr(*found).collect()
    assert dict.fromkeys(found, 1) == dict(zip(found, counts, strict=True))
