"""Changes of keyed rows are merged into a table, even while other writers change it."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.ledger.snapshot_summary import Backfill, Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.sinks.iceberg.upsert import UpsertTable
from tests.support.catalogs import SqliteCase
from tests.support.feed_table import refused
from tests.support.ledger_feed import CHANGES, Change
from tests.support.upserts import Upserts


def _land(upserts: Upserts, start: int, end: int) -> None:
    upserts.land(start, end, [])


@pytest.fixture(
    params=[
        ("merge-on-read", 2, None),
        ("merge-on-read", 2, 0),
        pytest.param(("copy-on-write", 2, None), marks=pytest.mark.slow),
        pytest.param(("merge-on-read", 3, None), marks=pytest.mark.slow),
        pytest.param(("copy-on-write", 3, None), marks=pytest.mark.slow),
    ],
    ids=lambda how: f"{how[0]}-{how[1]}{'' if how[2] is None else '-merged'}",
)
def upserts(upserting: SparkSession, request: pytest.FixtureRequest) -> Upserts:
    write, version, index = request.param
    return Upserts(upserting, {"write": write, "format_version": version, "key_index_mb": index})


@pytest.mark.quick
def test_the_newest_change_of_a_key_replaces_the_others_of_the_batch_and_the_stored_row(upserts: Upserts) -> None:
    assert upserts.land(0, 5, [(1, "a", "old", 0, 0), (2, "a", "two", 0, 1), (1, "a", "new", 0, 3)]) == 2
    assert upserts.rows() == [(1, "a", "new", 3), (2, "a", "two", 1)]
    assert (
        upserts.land(5, 9, [(1, "a", None, 0, 5), (2, "b", "2b", 0, 6), (3, "c", "3", 0, 7), (3, "c", None, 0, 8)]) == 2
    )
    assert upserts.rows() == [(2, "b", "2b", 6)]
    newest, first = upserts.commits()
    assert newest.upserts is not None
    assert first.upserts is not None
    assert (first.upserts.changes, first.upserts.keys, first.upserts.inserted) == (3, 2, 2)
    assert (newest.upserts.changes, newest.upserts.superseded, newest.upserts.deletes) == (4, 1, 2)
    assert (newest.upserts.updated, newest.upserts.deleted, newest.upserts.void) == (1, 1, 1)
    assert newest.rows == 1


@pytest.mark.quick
def test_a_repeated_batch_leaves_the_table_unchanged_and_the_ledger_recognizes_it(upserts: Upserts) -> None:
    changes: list[Change] = [(1, "a", "x", 0, 0), (2, "a", "y", 0, 1), (2, "a", None, 0, 2)]
    upserts.land(0, 3, changes)
    before = upserts.rows()
    assert upserts.table.has(upserts.batch(0, 3))
    # Rewind the feed without removing rows, so that it reads all records a second time.
    move = PositionReset("rewind", {("topic", 0): (3, 0)})
    upserts.table.ledger.record_move(
        Commit("shop", 3, move.reaches(upserts.batch(3, 3).ranges), upserts.fence, move=move), commit_id="rewound"
    )
    assert upserts.land(0, 3, changes) == 0
    assert upserts.rows() == before
    assert upserts.commits()[0].ranges == upserts.batch(0, 3).ranges


def test_a_batch_without_changes_is_stored_in_the_ledger(upserts: Upserts) -> None:
    assert upserts.land(0, 2, [(7, None, None, 0, 0)]) == 0
    assert upserts.land(2, 2, []) == 0
    assert upserts.land(2, 4, [(7, None, None, 0, 2)]) == 0
    assert [each.ranges.ranges[0].end for each in upserts.commits()] == [4, 2, 2]
    refused(lambda: _land(upserts, 5, 6), "topic-0 begins at 5, the table ends at 4")


def test_an_older_change_that_arrives_late_does_not_undo_a_marked_delete(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {"on_delete": "mark"})
    upserts.land(10, 14, [(1, "a", "x", 0, 10), (1, None, None, 0, 12), (2, None, None, 0, 13)])
    assert upserts.rows("id, lakefeed_deleted, kafka_offset") == [(1, True, 12), (2, True, 13)]
    fence = upserts.table.take_fence(".backfills")
    old: list[Change] = [(1, "a", "older", 0, 5), (2, "a", "older", 0, 6), (3, "a", "alone", 0, 7)]
    ranges = OffsetRanges((OffsetRange("topic", 0, 0, 10),), {"topic": "one"})
    upserts.table.land(upserts.changes(old), Backfill("shop", ranges, fence), commit_id="backfill")
    assert upserts.rows("id, v, lakefeed_deleted") == [(1, None, True), (2, None, True), (3, "alone", False)]
    upserts.land(14, 15, [(2, "a", "again", 0, 14)])
    assert upserts.rows("id, v, lakefeed_deleted")[1] == (2, "again", False)


@pytest.mark.quick
def test_a_table_without_marked_deletes_refuses_backfills_and_replays(plain: Upserts) -> None:
    for suffix in (".backfills", ".replays"):
        with pytest.raises(ConfigError, match="could bring a deleted key back"):
            plain.table.take_fence(suffix)


def test_a_key_in_two_partitions_stops_the_feed_unless_a_column_orders_its_changes(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {})
    with pytest.raises(ConfigError, match="changes in more than one partition") as raised:
        upserts.land(0, 2, [(1, "a", "x", 0, 0), (1, "a", "y", 1, 0)])
    assert "topic topic, partition 0, offset 0" in str(raised.value)
    upserts.land(0, 2, [(1, "a", "x", 0, 1)])
    with pytest.raises(ConfigError, match="topic topic, partition 1, offset 0"):
        upserts.land(2, 3, [(1, "a", "y", 1, 0)])
    assert upserts.rows() == [(1, "a", "x", 1)]
    ordered = Upserts(upserting, {"order_by": ["v"], "on_delete": "mark"})
    ordered.land(0, 2, [(1, "a", "2018", 0, 0), (1, "b", "2020", 1, 0), (2, "a", "2019", 0, 1)])
    ordered.land(2, 4, [(1, "c", "2019", 2, 9), (2, "b", "2019", 1, 1)])
    assert ordered.rows() == [(1, "b", "2020", 0), (2, "b", "2019", 1)]


def test_a_change_without_a_key_is_an_error_with_its_offset(plain: Upserts) -> None:
    with pytest.raises(ConfigError, match="a change has no key: id is null") as raised:
        plain.land(0, 2, [(1, "a", "x", 0, 0), (None, "a", "y", 0, 1)])
    assert "topic topic, partition 0, offset 1" in str(raised.value)
    assert plain.rows() == []


def test_a_recreated_topic_is_refused_until_its_offsets_are_cleared(plain: Upserts) -> None:
    plain.land(0, 9, [(1, "a", "x", 0, 8)])
    move = PositionReset("accepted-loss", {("topic", 0): (9, 0)}, {"topic": "one"})
    begun = OffsetRanges((OffsetRange("topic", 0, 0, 0),), {"topic": "two"})
    plain.table.ledger.record_move(Commit("shop", 0, begun, plain.fence, move=move), commit_id="again")
    with pytest.raises(CheckpointMismatch, match="topic topic was recreated"):
        plain.land(0, 2, [(1, "a", "y", 0, 1)], topic_id="two")
    plain.spark.sql(f"UPDATE {plain.name} SET kafka_offset = NULL")
    plain.spark.sql(f"ALTER TABLE {plain.name} UNSET TBLPROPERTIES ('lakefeed.offsets-of.topic')")
    plain.restart()
    plain.land(0, 2, [(1, "a", "y", 0, 1)], topic_id="two")
    assert plain.rows() == [(1, "a", "y", 1)]


def test_a_restart_applies_a_new_partitioning_and_sort_order(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {"partition_by": ["city"]})
    upserts.land(0, 2, [(1, "a", "x", 0, 0), (2, "b", "y", 0, 1)])
    upserts.restart(partition_by=["bucket(4, id)"], sort_by=["city desc"])
    upserts.land(2, 4, [(1, "c", "x2", 0, 2), (3, "b", "z", 0, 3)])
    upserts.restart()
    assert upserts.rows("id, city") == [(1, "c"), (2, "b"), (3, "b")]
    table = upserts.table.ledger.loaded()
    assert [str(each.name()) for each in table.spec().fields()] == ["id_bucket_4"]
    assert "city DESC" in str(table.sortOrder()) or "DESC" in str(table.sortOrder())
    assert {int(row.spec_id) for row in upserting.sql(f"SELECT spec_id FROM {upserts.name}.files").collect()} >= {0}


def test_changes_of_the_feed_replace_rows_of_another_writer(upserts: Upserts) -> None:
    upserts.spark.sql(f"INSERT INTO {upserts.name} (id, city, v) VALUES (9, 'z', 'foreign'), (8, 'z', 'foreign')")
    upserts.land(0, 3, [(9, "a", "ours", 0, 1), (5, "a", "x", 0, 2)])
    assert upserts.rows() == [(5, "a", "x", 2), (8, "z", "foreign", None), (9, "a", "ours", 1)]


@pytest.mark.parametrize("write", ["merge-on-read", "copy-on-write"])
def test_two_simultaneous_upserts_of_the_same_keys_leave_one_row_per_key(
    upserting: SparkSession, upsert_catalog: SqliteCase, write: Literal["merge-on-read", "copy-on-write"]
) -> None:
    one = Upserts(upserting, {"write": write})
    apart = upserting.newSession()
    upsert_catalog.declare(apart)
    sink = IcebergSinkConfig(table=one.name, mode="upsert", keys=["id"], write=write)
    other = UpsertTable(apart, sink, feed="other")
    other.apply_schema(one.changes([]).schema)
    for batch in range(3):
        changes: list[Change] = [(batch * 10 + key, "a", "x", 0, batch * 10 + key) for key in range(10)]
        theirs = Commit("other", batch, one.batch(batch * 10, batch * 10 + 10).ranges)
        same = apart.createDataFrame(one.changes(changes).collect(), CHANGES)
        with ThreadPoolExecutor(2) as pool:
            landings = [
                pool.submit(one.land, batch * 10, batch * 10 + 10, changes),
                pool.submit(other.land, same, theirs, commit_id=uuid.uuid4().hex),
            ]
            # Both feeds insert the same 10 keys; the second commit must find the rows of the first, and insert none.
            assert sum(landing.result() or 0 for landing in landings) == 10
    assert one.rows("id") == [(key,) for key in range(30)]


def test_a_merge_is_retried_if_another_writer_has_changed_the_table(
    plain: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.restart(key_index_mb=0)
    run, failures = plain.table.ledger.run, ["Found conflicting files that can contain records matching"]

    def conflicted(*arguments: Any, **named: Any) -> None:
        if failures:
            raise RuntimeError(failures.pop())
        run(*arguments, **named)

    monkeypatch.setattr(plain.table.ledger, "run", conflicted)
    assert plain.land(0, 1, [(1, "a", "x", 0, 0)]) == 1


def test_a_merge_succeeds_while_another_process_rewrites_its_files(
    upserts: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, ledger, ended, asked = upserts.spark, upserts.table.ledger, threading.Event(), list[int]()
    for_quiet = ledger.ask_for_quiet

    def ask() -> None:
        asked.append(1)
        for_quiet()

    monkeypatch.setattr(ledger, "ask_for_quiet", ask)

    def rewrite() -> None:
        """Rewrite all files repeatedly with Iceberg's own action, which does not wait for lakefeed's writers."""
        gateway: Any = spark._jvm
        gateway.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
        actions = gateway.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
        while not ended.is_set():
            action = actions.rewriteDataFiles(ledger.loaded()).option("rewrite-all", "true")
            with suppress(Py4JJavaError):
                action.execute()

    upserts.land(0, 20, [(key, "a", "before", 0, key) for key in range(20)])
    rewriting = threading.Thread(target=rewrite)
    rewriting.start()
    try:
        landed = 1
        while not asked and landed < 20:
            start = landed * 20
            upserts.land(start, start + 20, [(key, "a", str(landed), 0, start + key) for key in range(20)])
            landed += 1
    finally:
        ended.set()
        rewriting.join(300)
    assert asked, "no MERGE has met a rewrite"
    assert upserts.rows("id, v") == [(key, str(landed - 1)) for key in range(20)]
    assert len(upserts.commits()) == landed
