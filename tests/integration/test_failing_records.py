"""A transform fails at a record: the error names the record, nothing is committed, and the feed can resume."""

import json
from typing import Any

import pytest
from pyiceberg.types import LongType, UUIDType
from pyspark.sql import SparkSession

from lakefeed.errors import JobFailed, RowsRefused
from lakefeed.sinks.dead_letters.store import DeadLetterFilter
from lakefeed.sinks.dead_letters.table import DeadLetterTable
from lakefeed_repair.replay import replay
from tests.support.feed import TRIP, Feed

DECODE = {"json": {"schema_ddl": "id BIGINT, text STRING"}, "metadata": ["partition", "offset"]}
SECRET = "hunter2"


def test_the_error_of_a_failing_record_names_its_offset_and_no_value(
    lake: SparkSession, feed: Feed, capfd: pytest.CaptureFixture[str]
) -> None:
    feed.create_topic(partitions=2)
    transform = {"sql": f"SELECT id, 100 / CAST(text AS INT) AS share, kafka_partition, kafka_offset FROM {feed.name}"}
    # The text of the record looks like an exception of a server, but the run must not wait for a server.
    texts = ["1", "2", "4", f"{SECRET}: java.net.ConnectException: Connection refused", "5"]
    values = [json.dumps({"id": id_, "text": text}).encode() for id_, text in enumerate(texts)]
    feed.send(values[:3], partition=0)
    feed.send(values, partition=1)
    capfd.readouterr()
    with pytest.raises(JobFailed) as failed:
        feed.pipeline(decode=DECODE, transform=transform).run(spark=lake, once=True)
    assert failed.value.what == f"the batch fails at {feed.topic}-1 offset 3; nothing of it is written"
    # tests/unit/messages/test_printable.py tests the rest of the error: the types and the expression.
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


def test_the_error_for_a_row_that_fits_no_partition_names_its_record(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    prices = ["1.00", "-99.90", "99.99", "-99.99", "0.00"]
    feed.send([json.dumps({"id": id_, "price": float(price)}).encode() for id_, price in enumerate(prices)])
    blocks = {
        "decode": {"json": {"schema_ddl": "id BIGINT, price DECIMAL(4, 2)"}, "metadata": ["offset"]},
        "sink": {"iceberg": {"table": feed.table, "partition_by": ["truncate(10, price)"]}},
    }
    with pytest.raises(RowsRefused) as failed:
        feed.pipeline(**blocks).run(spark=lake, once=True)
    assert f"the row comes from {feed.topic}-0 offset 3" in failed.value.what
    assert "99.99" not in str(failed.value)
    assert feed.rows() == []

    rule = {"partition": {"rule": "price > -99.91", "on_violation": "drop"}}
    summary = feed.pipeline(**blocks, expect=rule).run(spark=lake, once=True)
    assert (summary.rows, summary.records) == (4, 5)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_records_that_make_a_batch_fail_become_dead_letters(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The dead letters are written even if the driver dies between the commit of the rows and that of the letters."""
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


@pytest.mark.parametrize("mode", ["append", pytest.param("upsert", marks=pytest.mark.slow)])
def test_a_timestamp_too_late_for_an_hour_partition_is_a_dead_letter(lake: SparkSession, feed: Feed, mode: str) -> None:
    """Iceberg's hour would overflow: the row would be in a partition before 1970, where no filter selects it."""
    feed.create_topic(partitions=1)
    last = (2**31 * 3_600_000_000) - 1
    moments = [0, last, last + 1, 2**63 - 1, -(2**31) * 3_600_000_000 + 1, -(2**63), None]
    feed.send([json.dumps({"id": at, "n": moment}).encode() for at, moment in enumerate(moments)], partition=0)
    keyed = {"mode": "upsert", "keys": ["id"]} if mode == "upsert" else {}
    kept = ", kafka_topic, kafka_partition, kafka_offset, lakefeed_deleted" if keyed else ""
    blocks: dict[str, Any] = {
        "decode": {"json": {"schema_ddl": "id INT, n BIGINT"}},
        "transform": {"sql": f"SELECT id, timestamp_micros(n) AS at{kept} FROM {feed.name}"},
        "sink": {"iceberg": {"table": feed.table, "partition_by": ["hours(at)"], **keyed}},
        "dead_letters": {"table": f"{feed.table}_dead"},
    }
    summary = feed.pipeline(**blocks).run(spark=lake, once=True)
    assert (summary.records, summary.dead_letters) == (7, 3)
    rows = lake.table(feed.table)
    assert {row.id for row in rows.select("id").collect()} == {0, 1, 4, 6}
    assert [row.id for row in rows.where("at > timestamp_micros(1)").select("id").collect()] == [1]
    letters = {each["offset"]: each["reason"] for each in feed.rows(f"{feed.table}_dead")}
    assert sorted(letters) == [2, 3, 5]
    assert all("after the year 246953" in reason for reason in letters.values())


def test_a_group_with_a_timestamp_too_late_for_an_hour_partition_is_refused(lake: SparkSession, feed: Feed) -> None:
    """A group is made of several records, so lakefeed cannot make a single record a dead letter."""
    feed.create_topic(partitions=1)
    feed.send([json.dumps({"id": 1, "n": 2**31 * 3_600_000_000}).encode()])
    blocks: dict[str, Any] = {
        "decode": {"json": {"schema_ddl": "id INT, n BIGINT"}},
        "transform": {
            "sql": f"SELECT id, max(timestamp_micros(n)) AS at FROM {feed.name} GROUP BY id",
            "output_mode": "update",
        },
        "sink": {"iceberg": {"table": feed.table, "partition_by": ["hours(at)"], "mode": "upsert", "keys": ["id"]}},
    }
    with pytest.raises(RowsRefused, match="cannot represent the hour of a time after the year 246953"):
        feed.pipeline(**blocks).run(spark=lake, once=True)
    assert feed.rows() == []


@pytest.mark.parametrize("kind", ["table", "topic"])
def test_a_replay_lands_valid_letters_and_updates_the_reason_of_invalid_letters(
    lake: SparkSession, feed: Feed, kind: str
) -> None:
    """The invalid letters are still refused by the decoder, by the transform or by the table."""
    feed.create_topic(partitions=2)
    feed.create_table({"id": LongType(), "u": UUIDType()})
    good = "123e4567-e89b-12d3-a456-426614174000"
    values = [(good, "1"), (SECRET, "1"), (None, SECRET), (good, "4"), (good, "long" * 500), (good, "5")]
    for partition in range(2):
        texts = [json.dumps({"id": 10 * partition + at, "u": u, "text": text}) for at, (u, text) in enumerate(values)]
        feed.send([*(each.encode() for each in texts), b"{"], partition=partition)
    blocks: dict[str, Any] = {
        "decode": {"json": {"schema_ddl": "id BIGINT, u STRING, text STRING"}},
        "transform": {"sql": f"SELECT *, IF(length(text) < 9, 100 / CAST(text AS INT), 0) AS share FROM {feed.name}"},
        "sink": {"iceberg": {"table": feed.table, "partition_by": ["text"]}},
        "dead_letters": {kind: f"{feed.table}_dead" if kind == "table" else f"{feed.topic}-dead"},
        "expect": {"none": {"rule": "id < 0", "on_violation": "dead_letter"}},
    }
    summary = feed.pipeline(**blocks).run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters) == (0, 14)
    del blocks["expect"]
    choice = DeadLetterFilter(feed=feed.name)

    def reasons() -> dict[int, str]:
        found = feed.pipeline(**blocks).feed.dead_letters().find(choice)
        assert not any(each["replay"] for each in found)
        return {7 * each["partition"] + each["offset"]: each["reason"] for each in found}

    done = replay(feed.pipeline(**blocks), choice, spark=lake)
    assert (done.rows, done.still_dead) == (6, 8)
    assert sorted(row["id"] for row in feed.rows()) == [0, 3, 5, 10, 13, 15]
    says = ["IllegalArgument", "[CAST_INVALID_INPUT]", "a text is too long for a partition", "truncated JSON"]
    left = reasons()
    assert sorted(left) == [1, 2, 4, 6, 8, 9, 11, 13]
    assert all(why in left[7 * of + at] for of in range(2) for at, why in zip((1, 2, 4, 6), says, strict=True)), left
    assert SECRET not in str(left)

    blocks["transform"]["sql"] = f"SELECT *, try_cast(text AS INT) AS share FROM {feed.name}"
    done = replay(feed.pipeline(**blocks), choice, spark=lake)
    assert (done.rows, done.still_dead) == (2, 6)
    assert reasons().keys() == left.keys() - {2, 9}
    assert not feed.pipeline(**blocks).verify().faults


def test_a_replayed_letter_with_a_refused_schema_stays_a_dead_letter(lake: SparkSession, feed: Feed) -> None:
    """The schema is refused only when the replay computes the row of the letter."""
    feed.create_topic(partitions=1)
    later: dict[str, Any] = {**TRIP, "fields": [*TRIP["fields"], {"name": "more", "type": "int"}]}
    unusable = {**later, "fields": [*later["fields"], {"name": "ZONE", "type": "int"}]}
    of_later = feed.avro([{"id": 1, "zone": "a", "more": 1}], later, topic=f"{feed.topic}-later")
    of_unusable = feed.avro([{"id": 2, "zone": "a", "more": 1, "ZONE": 2}], unusable, topic=f"{feed.topic}-unusable")
    feed.send([*feed.avro([{"id": 0, "zone": "a"}]), *of_later, *of_unusable], partition=0)
    blocks: dict[str, Any] = {
        "dead_letters": {"table": f"{feed.table}_dead"},
        "expect": {"none": {"rule": "id < 0", "on_violation": "dead_letter"}},
    }
    assert feed.pipeline(**blocks).run(spark=lake, once=True).dead_letters == 3
    del blocks["expect"]
    for landed in (2, 0):
        done = replay(feed.pipeline(**blocks), DeadLetterFilter(feed=feed.name), spark=lake)
        assert (done.rows, done.still_dead) == (landed, 1)
        [letter] = feed.rows(f"{feed.table}_dead")
        assert (letter["offset"], letter["replay"]) == (2, None)
        assert "ZONE" in letter["reason"]
    assert sorted(row["id"] for row in feed.rows()) == [0, 1]
