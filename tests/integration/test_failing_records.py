"""A record that the transform fails at: the error names it, nothing is committed, and the feed resumes without it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lakefeed.errors import JobFailed, RowsRefused
from lakefeed.sinks.dead_letters.table import DeadLetterTable
from tests.support.feed import Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECODE = {"json": {"schema_ddl": "id BIGINT, text STRING"}, "metadata": ["partition", "offset"]}
SECRET = "hunter2"


def test_the_record_is_named_without_its_values(
    lake: SparkSession, feed: Feed, capfd: pytest.CaptureFixture[str]
) -> None:
    feed.create_topic(partitions=2)
    transform = {"sql": f"SELECT id, 100 / CAST(text AS INT) AS share, kafka_partition, kafka_offset FROM {feed.name}"}
    texts = ["1", "2", "4", SECRET, "5"]
    values = [json.dumps({"id": id_, "text": text}).encode() for id_, text in enumerate(texts)]
    feed.send(values[:3], partition=0)
    feed.send(values, partition=1)
    capfd.readouterr()
    with pytest.raises(JobFailed) as failed:
        feed.pipeline(decode=DECODE, transform=transform).run(spark=lake, once=True)
    assert failed.value.what == f"the batch fails at {feed.topic}-1 offset 3; nothing of it is written"
    # tests/unit/messages/test_record_values.py has what follows: the types and the expression.
    assert failed.value.where is not None
    assert failed.value.where.startswith(f"feed {feed.name}, [CAST_INVALID_INPUT]")
    assert failed.value.hint is not None
    assert f"--range {feed.topic}:1:3:4;" in failed.value.hint
    assert SECRET not in str(failed.value) + "".join(capfd.readouterr())
    assert feed.rows() == []

    rule = {"number": {"rule": "text RLIKE '^[0-9]+$'", "on_violation": "drop"}}
    summary = feed.pipeline(decode=DECODE, transform=transform, expect=rule).run(spark=lake, once=True)
    assert (summary.rows, summary.records) == (7, 8)
    landed = sorted((each["kafka_partition"], each["kafka_offset"]) for each in feed.rows())
    assert landed == [*((0, each) for each in range(3)), (1, 0), (1, 1), (1, 2), (1, 4)]


def test_a_row_without_a_partition_is_named_with_its_record(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    prices = ["1.00", "-99.90", "99.99", "-99.99", "0.00"]
    feed.send([json.dumps({"id": id_, "price": float(price)}).encode() for id_, price in enumerate(prices)])
    blocks = {
        "decode": {"json": {"schema_ddl": "id BIGINT, price DECIMAL(4, 2)"}, "metadata": ["offset"]},
        "sink": {"iceberg": {"table": feed.table, "partition_by": ["truncate(10, price)"]}},
    }
    with pytest.raises(RowsRefused) as failed:
        feed.pipeline(**blocks).run(spark=lake, once=True)
    assert f"it is the row of {feed.topic}-0 offset 3" in failed.value.what
    assert "99.99" not in str(failed.value)
    assert feed.rows() == []

    rule = {"partition": {"rule": "price > -99.91", "on_violation": "drop"}}
    summary = feed.pipeline(**blocks, expect=rule).run(spark=lake, once=True)
    assert (summary.rows, summary.records) == (4, 5)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_records_that_a_batch_fails_at_are_isolated_as_dead_letters(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Also where the driver ends between the commit of the rows and that of the letters."""
    feed.create_topic(partitions=2)
    lake.sql(f"CREATE NAMESPACE IF NOT EXISTS {feed.catalog}.{feed.name}")
    lake.sql(f"CREATE TABLE {feed.table} (id BIGINT, share DOUBLE, unused STRING)")
    texts = ["1", "2", SECRET, "4", "Connection refused", "5"]
    for partition in range(2):
        values = [json.dumps({"id": 10 * partition + at, "text": text}).encode() for at, text in enumerate(texts)]
        feed.send(values, partition=partition)
    keyed = {"mode": "upsert", "keys": ["id"]} if mode == "upsert" else {}
    positions = {} if keyed else {"metadata": ["topic", "partition", "offset"]}
    blocks = {
        "decode": {"json": {"schema_ddl": "id BIGINT, text STRING"}, **positions},
        "transform": {"sql": f"SELECT *, 100 / CAST(text AS INT) AS share FROM {feed.name}"},
        "sink": {"iceberg": {"table": feed.table, **keyed}},
        "dead_letters": {"table": f"{feed.table}_dead"},
    }

    def ends(*_: object, **__: object) -> None:
        raise RuntimeError("the driver has ended")

    written = DeadLetterTable.write
    monkeypatch.setattr(DeadLetterTable, "write", ends)
    with pytest.raises(Exception, match="the driver has ended"):
        feed.pipeline(**blocks).run(spark=lake, once=True)
    monkeypatch.setattr(DeadLetterTable, "write", written)
    assert len(feed.rows()) == 8
    feed.send([json.dumps({"id": 99, "text": "50"}).encode()], partition=0)
    summary = feed.pipeline(**blocks).run(spark=lake, once=True)
    assert (summary.records, summary.dead_letters) == (1, 0)
    assert {row["id"]: row["share"] for row in feed.rows()} == {
        **{10 * partition + at: 100 / int(texts[at]) for partition in range(2) for at in (0, 1, 3, 5)},
        99: 2.0,
    }
    letters = feed.rows(f"{feed.table}_dead")
    assert sorted((each["partition"], each["offset"]) for each in letters) == [(0, 2), (0, 4), (1, 2), (1, 4)]
    assert all("[CAST_INVALID_INPUT]" in each["reason"] and SECRET not in each["reason"] for each in letters)
    assert not feed.pipeline(**blocks).verify(deep=not keyed).faults
