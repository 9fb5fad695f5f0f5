"""In each partition, every record is either a row, a dead letter or a skipped record."""

import base64
import json
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import CheckpointMismatch, ErrorBudgetExceeded
from lakefeed.feed.s3_requests import s3_requests
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.sinks.dead_letters.store import DeadLetterFilter
from lakefeed_repair.replay import replay
from tests.support.cli import lakefeed
from tests.support.deaths import CutOff, cut_off_at
from tests.support.feed import Feed, trips

REGISTRY = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}}
SMALL = {"small": {"rule": "id < 10", "on_violation": "dead_letter"}}


def dead(feed: Feed, kind: str = "table") -> str:
    return f"lake.{feed.name}.dead_letters" if kind == "table" else f"{feed.name}-dead-letters"


def letters(feed: Feed) -> list[dict[str, Any]]:
    return feed.rows(dead(feed))


def positions(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["kafka_partition"], row["kafka_offset"]) for row in rows)


@pytest.mark.quick
def test_a_broken_record_becomes_a_dead_letter_and_the_other_records_become_rows(
    lake: SparkSession, feed: Feed
) -> None:
    feed.create_topic()
    good = feed.avro(trips(0, 300))
    broken = [b"", b"\x01garbage", good[0][:7], b"\x00\x7f\xff\xff\xff\x02", good[1] + b"x"]
    feed.send([*good[:150], *broken, *good[150:]], headers=[("source", b"test")])
    pipeline = feed.pipeline(
        decode={**REGISTRY, "metadata": ["partition", "offset"]}, dead_letters={"table": dead(feed)}
    )
    summary = pipeline.run(spark=lake, once=True)
    assert (summary.records, summary.rows, summary.dead_letters, summary.skipped) == (305, 300, 5, 0)
    rows = feed.rows()
    assert sorted(row["id"] for row in rows) == list(range(300))
    found = letters(feed)
    assert Counter(row["value"] for row in found) == Counter(broken)
    assert {row["topic"] for row in found} == {feed.topic}
    assert {row["feed"] for row in found} == {feed.name}
    assert found[0]["headers"] == [{"key": "source", "value": b"test"}]
    taken = positions(rows) + [(row["partition"], row["offset"]) for row in found]
    assert len(taken) == len(set(taken)) == 305
    reasons = {row["value"]: row["reason"] for row in found}
    assert "empty" in reasons[b""]
    assert "magic byte" in reasons[broken[1]]
    assert "left over" in reasons[broken[4]]
    [commit] = IcebergLedger(lake, feed.table, feed.name).commits()
    assert sum(each.records for each in commit.counts.values()) == 305
    assert sum(each.dead_letters for each in commit.counts.values()) == 5
    assert commit.fence is not None


def test_batches_without_dead_letters_make_no_request_for_dead_letters(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    feed.send(feed.avro(trips(0, 100)))
    feed.pipeline(dead_letters={"table": dead(feed)}).run(spark=lake, once=True)
    assert open_table(dead(feed), connections=feed.connections).current_snapshot() is None


@pytest.mark.quick
def test_expectations_drop_rows_or_turn_them_into_dead_letters(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    feed.send([*feed.avro(trips(0, 100)), None])
    expect = {
        "not_forty": {"rule": "id <> 40", "on_violation": "drop"},
        "small": {"rule": "id < 95", "on_violation": "dead_letter"},
        "defined": {"rule": "1 / (id - 7) IS NOT NULL", "on_violation": "dead_letter"},
    }
    pipeline = feed.pipeline(decode={**REGISTRY, "on_null": "skip"}, dead_letters={"table": dead(feed)}, expect=expect)
    summary = pipeline.run(spark=lake, once=True)
    assert (summary.records, summary.rows, summary.dead_letters, summary.skipped) == (101, 93, 6, 2)
    assert sorted(row["reason"] for row in letters(feed)) == sorted(
        ["expectation defined: 1 / (id - 7) IS NOT NULL", *["expectation small: id < 95"] * 5]
    )


@pytest.mark.quick
def test_a_feed_beyond_its_error_budget_stops_before_it_lands_rows(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    good = feed.avro(trips(0, 97))
    feed.send([*good, b"\x01one", b"\x01two", b""])
    blocks: dict[str, Any] = {"decode": REGISTRY, "dead_letters": {"table": dead(feed), "budget": {"max_rows": 2}}}
    with pytest.raises(ErrorBudgetExceeded) as stopped:
        feed.pipeline(**blocks).run(spark=lake, once=True)
    assert "3 of 100 records" in stopped.value.what
    assert "2 times wrong magic byte" in stopped.value.what
    assert feed.topic in stopped.value.what
    assert feed.rows() == []
    assert letters(feed) == []
    blocks["dead_letters"]["budget"] = {"max_share": 0.03}
    summary = feed.pipeline(**blocks).run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters) == (97, 3)


def test_the_error_budget_of_a_window_includes_batches_before_a_restart(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    blocks = {
        "decode": REGISTRY,
        "dead_letters": {"table": dead(feed), "budget": {"window": {"duration": "1 hour", "max_rows": 3}}},
    }
    good = feed.avro(trips(0, 10))
    for _ in range(3):
        feed.send([*good, b"\x01"])
        feed.pipeline(**blocks).run(spark=lake, once=True)
    feed.send([*good, b"\x01"])
    with pytest.raises(ErrorBudgetExceeded):
        feed.pipeline(**blocks).run(spark=lake, once=True)
    assert len(feed.rows()) == 30


def test_dead_letters_lost_to_a_crash_are_written_at_the_next_start(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    feed.send([*feed.avro(trips(0, 50)), b"\x01", b"\x02"])
    blocks = {"decode": REGISTRY, "dead_letters": {"table": dead(feed)}}
    feed.pipeline(**blocks).run(spark=lake, once=True)
    # Dropping the table of dead letters simulates a kill between the commit of the rows and that of the letters.
    lake.sql(f"DROP TABLE {dead(feed)} PURGE")
    feed.pipeline(**blocks).run(spark=lake, once=True)
    assert len(letters(feed)) == 2
    before = s3_requests(lake)
    feed.pipeline(**blocks).run(spark=lake, once=True)
    made = s3_requests(lake) - before
    # No data file is written twice. The commit check alone would refuse the second commit only after its files were
    # written.
    assert ("PutObject", "data") not in {(each.operation, each.key_class) for each in made.counts if each.requests}
    assert len(letters(feed)) == 2
    assert len(feed.rows()) == 50


def test_parquet_letters_lost_to_a_crash_are_written_when_the_batch_is_repeated(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    feed.send([*feed.avro(trips(0, 50)), b"\x01", b"\x02"])
    path = f"s3a://{feed.stack.bucket}/parquet/{feed.name}"
    blocks = {"sink": {"parquet": {"path": path}}, "dead_letters": {"table": dead(feed)}}
    summary = feed.pipeline(**blocks).run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters, len(letters(feed))) == (50, 2, 2)
    feed.forget("commits/0")
    lake.sql(f"DROP TABLE {dead(feed)} PURGE")
    for _ in range(2):
        summary = feed.pipeline(**blocks).run(spark=lake, once=True)
        assert (summary.batches, summary.rows) == (0, 0)
        assert len(letters(feed)) == 2
        assert lake.read.parquet(path).count() == 50
        feed.forget("commits/0")


@pytest.mark.quick
def test_a_driver_commits_nothing_after_a_second_driver_has_taken_over(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    feed.send(feed.avro(trips(0, 10)))
    pipeline = feed.pipeline()
    pipeline.run(spark=lake, once=True)
    feed.send(feed.avro(trips(10, 20)))

    def overtaken(_: object) -> None:
        IcebergLedger(lake, feed.table, feed.name).take_fence()
        feed.send(feed.avro(trips(20, 30)))

    with pytest.raises(CheckpointMismatch, match="another driver has taken over"):
        feed.pipeline(trigger="1 second").run(spark=lake, on_batch=overtaken)
    assert len(feed.rows()) == 20


@pytest.mark.quick
def test_a_replay_lands_the_letters_that_are_valid_now_and_a_second_replay_lands_none(
    lake: SparkSession, feed: Feed
) -> None:
    feed.create_topic()
    feed.send([*feed.avro(trips(0, 100)), b"\x01", b""])
    blocks: dict[str, Any] = {
        "decode": {**REGISTRY, "metadata": ["topic", "partition", "offset", "timestamp"]},
        "dead_letters": {"table": dead(feed)},
        "expect": {"small": {"rule": "id < 90", "on_violation": "dead_letter"}},
    }
    feed.pipeline(**blocks).run(spark=lake, once=True)
    before = {(each["partition"], each["offset"]): each["timestamp"] for each in letters(feed)}
    assert len(before) == 12
    choice = DeadLetterFilter(feed=feed.name)
    assert replay(feed.pipeline(**blocks), choice, spark=lake).still_dead == 12
    blocks["expect"]["small"]["rule"] = "id < 95"
    done = replay(feed.pipeline(**blocks), choice, spark=lake)
    assert (done.rows, done.still_dead) == (5, 7)
    del blocks["expect"]
    done = replay(feed.pipeline(**blocks), choice, spark=lake)
    assert (done.rows, done.still_dead) == (5, 2)
    again = replay(feed.pipeline(**blocks), choice, spark=lake)
    assert (again.rows, again.still_dead, again.replay_id) == (0, 2, None)
    rows = feed.rows()
    assert sorted(row["id"] for row in rows) == list(range(100))
    replayed = {
        (row["kafka_partition"], row["kafka_offset"]): row["kafka_timestamp"] for row in rows if row["id"] >= 90
    }
    assert {position: before[position] for position in replayed} == replayed
    feed.send(feed.avro(trips(100, 110)))
    assert feed.pipeline(**blocks).run(spark=lake, once=True).rows == 10


@pytest.mark.parametrize("cut_after", ["marked", "landed", "landed, long ago"])
@pytest.mark.parametrize("kind", ["table", pytest.param("topic", marks=pytest.mark.slow)])
def test_an_interrupted_replay_is_completed_by_the_next_replay(
    lake: SparkSession, feed: Feed, kind: str, cut_after: str
) -> None:
    feed.create_topic()
    feed.send([*feed.avro(trips(0, 20)), b"\x01"], headers=[("who", b"me")])
    blocks: dict[str, Any] = {
        "decode": {**REGISTRY, "metadata": ["topic", "partition", "offset", "headers"]},
        "dead_letters": {kind: dead(feed, kind)},
        "expect": SMALL,
    }
    feed.pipeline(**blocks).run(spark=lake, once=True)
    del blocks["expect"]
    pipeline, choice = feed.pipeline(**blocks), DeadLetterFilter(feed=feed.name)
    before = {(each["partition"], each["offset"]) for each in pipeline.feed.dead_letters().find(choice)}
    assert len(before) == 11
    with pytest.raises(CutOff):
        replay(pipeline, choice, spark=lake, step=cut_off_at(cut_after.partition(",")[0]))
    assert sum(each["replay"] is not None for each in pipeline.feed.dead_letters().find(choice)) == 10
    if cut_after == "landed, long ago":
        # Expire the snapshot of the interrupted replay, as upkeep may do before the next replay.
        IcebergLedger(lake, feed.table, feed.name).land_empty({})
        expire = f"CALL lake.system.expire_snapshots(table => '{feed.table.removeprefix('lake.')}', retain_last => 1"
        lake.sql(f"{expire}, older_than => TIMESTAMP '2999-01-01 00:00:00')").collect()
        assert len(open_table(feed.table, connections=feed.connections).snapshots()) == 1
    done = replay(pipeline, choice, spark=lake)
    assert (done.rows, done.finished_earlier, done.still_dead) == ((10, 0, 1) if cut_after == "marked" else (0, 10, 1))
    again = replay(pipeline, choice, spark=lake)
    assert (again.rows, again.still_dead, again.replay_id) == (0, 1, None)
    rows = feed.rows()
    assert sorted(row["id"] for row in rows) == list(range(20))
    assert {(row["kafka_partition"], row["kafka_offset"]) for row in rows if row["id"] >= 10} < before
    assert all(row["kafka_headers"] == [{"key": "who", "value": b"me"}] for row in rows)
    [left] = pipeline.feed.dead_letters().find(choice)
    assert left["replay"] is None


@pytest.mark.parametrize("kind", ["table", "topic"])
def test_commands_list_show_and_drop_dead_letters(lake: SparkSession, feed: Feed, kind: str) -> None:
    feed.create_topic(partitions=1)
    feed.send([*feed.avro(trips(0, 5)), b"\x01one", b"\x02two", b""], headers=[("who", b"me")])
    blocks = {"decode": REGISTRY, "dead_letters": {kind: dead(feed, kind)}}
    file, pipeline = feed.write_file(**blocks), feed.pipeline(**blocks)
    pipeline.run(spark=lake, once=True)

    def command(*arguments: str) -> Any:
        done = lakefeed("dead-letters", *arguments, file, "--output", "json", environment=feed.environment)
        return json.loads(done.stdout)

    listed = lakefeed("dead-letters", "list", file, environment=feed.environment).stdout
    assert f"{kind} {dead(feed, kind)}: 3 dead letters" in listed
    assert "wrong magic byte" in listed
    assert command("list")["count"] == 3
    shown = command("show", "0:5")
    assert base64.b64decode(shown["value_base64"]) == b"\x01one"
    assert shown["headers"] == [{"key": "who", "value_base64": base64.b64encode(b"me").decode()}]
    nowhere = lakefeed("dead-letters", "show", "0:1", file, environment=feed.environment, status=2)
    assert "no dead letter at partition 0, offset 1" in nowhere.stderr
    assert pipeline.feed.dead_letter_store(lake).drop(DeadLetterFilter(feed=feed.name, reason="wrong magic")) == 2
    left = command("list")
    assert (left[kind], left["count"]) == (dead(feed, kind), 1)
    assert left["dead_letters"][0]["offset"] == 7


def test_if_two_replays_run_at_once_the_later_replay_lands_the_letters(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    feed.send(feed.avro(trips(0, 20)))
    blocks: dict[str, Any] = {"decode": REGISTRY, "dead_letters": {"table": dead(feed)}, "expect": SMALL}
    feed.pipeline(**blocks).run(spark=lake, once=True)
    del blocks["expect"]
    choice = DeadLetterFilter(feed=feed.name)
    second = []

    def overtaken(step: str) -> None:
        if step == "marked":
            second.append(replay(feed.pipeline(**blocks), choice, spark=lake))

    with pytest.raises(CheckpointMismatch, match="another driver has taken over"):
        replay(feed.pipeline(**blocks), choice, spark=lake, step=overtaken)
    assert second[0].rows == 10
    assert sorted(row["id"] for row in feed.rows()) == list(range(20))
    assert letters(feed) == []
