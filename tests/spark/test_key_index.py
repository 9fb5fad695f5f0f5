"""With the index of keys, an upserted table equals a model in Python, whatever other writers do between batches."""

import math
import random
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode.unavailable import Unavailable
from lakefeed.sinks.iceberg import upsert
from lakefeed.sinks.iceberg.upsert import UpsertTable
from tests.support.ledger_feed import Change
from tests.support.upserts import CATALOG, Upserts

KEYS, TIMES = 40, 6


class Killed(Exception):
    """The interruption of a batch before its commit."""


class Feed:
    """Random batches of changes, applied both to a table and to a dictionary with the expected rows.

    With ``times``, columns order the changes, and a change's city ends with the number of its time, if it has one.
    """

    def __init__(
        self, upserts: Upserts, seed: int, *, partitions: int = 1, times: Sequence[Callable[[int], Any]] = ()
    ) -> None:
        self.upserts = upserts
        self.random = random.Random(seed)
        self.times = times
        self.rows: dict[int, tuple[Any, ...]] = {}
        self.log = list[Change]()
        self.ends = [0] * partitions

    def land(self, changes: int, *, killed: bool = False) -> None:
        starts, batch = list(self.ends), list[Change]()
        for _ in range(changes):
            partition, value = self.random.randrange(len(self.ends)), self.random.choice([None, "x", "y"])
            offset, city = self.ends[partition], self.random.choice("abc")
            if self.times:
                city += self.random.choice(["", *(f"@{time}" for time in range(TIMES))])
            self.ends[partition] += 1
            batch.append((self.random.randrange(KEYS), city, value and f"{value}{offset}", partition, offset))
        self.log += batch
        if killed:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(upsert, "run_in_turn", self._kill)
                with pytest.raises(Killed):
                    self._write(starts, batch)
            self.upserts.restart()
        self._write(starts, batch)

    @staticmethod
    def _kill(*_: Any, **__: Any) -> None:
        raise Killed

    def rewind(self, most: int) -> None:
        """Rewind the feed by up to ``most`` records in each partition, so that it reads them again."""
        back = [max(0, end - self.random.randrange(1, most)) for end in self.ends]
        move = PositionReset("rewind", {("topic", at): (end, back[at]) for at, end in enumerate(self.ends)})
        ranges = move.reaches(self._ranges(self.ends))
        moved = Commit("shop", len(self.log), ranges, self.upserts.fence, move=move)
        self.upserts.table.ledger.record_move(moved, commit_id=uuid.uuid4().hex)
        self._write(back, [change for change in self.log if change[4] >= back[change[3]]])

    def _ranges(self, starts: Sequence[int]) -> OffsetRanges:
        start, end = ({("topic", at): offset for at, offset in enumerate(each)} for each in (starts, self.ends))
        return OffsetRanges.between(start, end, {"topic": "one"})

    def _write(self, starts: Sequence[int], batch: Sequence[Change]) -> None:
        shuffled = self.random.sample(batch, len(batch))
        commit = Commit("shop", len(self.log), self._ranges(starts), self.upserts.fence)
        self.upserts.table.land(self.upserts.changes(shuffled), commit, commit_id=uuid.uuid4().hex)
        for change in batch:
            id_, _, text, *_ = change
            assert id_ is not None
            if id_ not in self.rows or self._rank(change) > self._rank(self.rows[id_]):
                self.rows[id_] = change
                if text is None and not self.times:
                    self.rows.pop(id_)

    def _rank(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a sort key: of two changes of a record key, the one with the greater sort key is newer."""
        if not self.times:
            return (row[4],)
        time = row[1].partition("@")[2]
        order = (of(int(time)) if time else -math.inf for of in self.times)
        return (*order, *(-1 if place is None else place for place in row[3:]))

    def check(self) -> None:
        columns = "id, city, v, kafka_partition, kafka_offset"
        found = self.upserts.rows(columns, self.upserts.table.written)
        assert {row[0]: row for row in found} == self.rows
        assert len(found) == len(self.rows)


def _compact(upserts: Upserts) -> None:
    gateway: Any = upserts.spark._jvm
    actions = gateway.org.apache.iceberg.spark.actions.SparkActions.get(upserts.spark._jsparkSession)
    actions.rewriteDataFiles(upserts.table.ledger.loaded()).option("rewrite-all", "true").execute()


@pytest.mark.parametrize(
    ("settings", "times"),
    [
        ({}, {}),
        ({"partition_by": ["bucket(3, id)", "city"]}, {}),
        ({"branch": "staging"}, {}),
        ({"format_version": 3, "partition_by": ["city"]}, {}),
        ({"with_history": True}, {}),
        ({"write": "copy-on-write"}, {}),
        ({"write": "copy-on-write", "format_version": 3, "partition_by": ["city"]}, {}),
        ({"write": "copy-on-write", "sort_by": ["v desc"], "partition_by": ["bucket(2, id)"]}, {"n": lambda n: n}),
        ({"sort_by": ["city", "v desc"]}, {}),
        ({}, {"n": lambda n: n}),
        ({"format_version": 3}, {"timestamp_micros(-n)": lambda n: -n}),
        (
            {"partition_by": ["bucket(3, id)"], "with_history": True},
            {"CAST(n DIV 2 AS SMALLINT)": lambda n: n // 2, "CAST(n - 2.5 AS DOUBLE)": lambda n: n},
        ),
        ({}, {"CAST(n * 10 - 25 AS DECIMAL(18, 2))": lambda n: n, "CAST(3 - n AS FLOAT)": lambda n: -n}),
    ],
)
def test_the_table_equals_the_model_after_compaction_deletes_and_rows_of_other_writers(
    upserting: SparkSession, settings: dict[str, Any], times: dict[str, Callable[[int], Any]]
) -> None:
    ordered = {"order_by": [f"AT{at}" for at in range(len(times))], "on_delete": "mark"} if times else {}
    upserts = Upserts(upserting, settings | ordered, times=tuple(times))
    feed = Feed(upserts, seed=len(str(settings)), partitions=3 if times else 1, times=tuple(times.values()))
    written = upserts.table.written
    for round_ in range(5):
        for _ in range(2):
            feed.land(25, killed=round_ == 4)
            assert upserts.table.merges_because is None
        feed.check()
        if round_ == 0 and "sort_by" in settings:
            _require_sorted(upserts, ", ".join(settings["sort_by"]))
        if round_ == 0 and "branch" not in settings:
            _compact(upserts)
        elif round_ == 1:
            upserting.sql(f"DELETE FROM {written} WHERE id < 10")
            feed.rows = {key: row for key, row in feed.rows.items() if key >= 10}
        elif round_ == 2:
            upserting.sql(f"UPDATE {written} SET v = 'theirs' WHERE city LIKE 'a%'")
            feed.rows = {
                key: (*row[:2], "theirs", *row[3:]) if row[1].startswith("a") else row for key, row in feed.rows.items()
            }
        elif round_ == 3:
            if times:
                _clear_positions(feed)
            feed.rewind(12)
            assert upserts.table.merges_because in (None, "the batch reads records again")
            feed.check()
    assert upserts.table._index.size() == len(feed.rows)
    if "write" in settings:
        assert upserting.table(f"{upserts.name}.delete_files").isEmpty()
    # The run printed no message: an index that missed another writer's commit would report wrong entries, and be
    # refilled.
    assert upserts.table.take_notes() == ()
    if "with_history" in settings:
        [count] = upserting.sql(f"SELECT count(*) FROM {upserts.history}").collect()[0]
        assert count == sum(feed.ends)


def _require_sorted(upserts: Upserts, order: str) -> None:
    """Fail unless the rows of a file are in this order; null comes first in an ascending order."""
    rows = f"SELECT *, _file, _pos, row_number() OVER (PARTITION BY _file ORDER BY {order}, _pos) AS place"
    in_file = "row_number() OVER (PARTITION BY _file ORDER BY _pos) AS place_in_file"
    wrong = upserts.spark.sql(f"SELECT * FROM ({rows}, {in_file} FROM {upserts.name}) WHERE place <> place_in_file")
    assert wrong.isEmpty(), wrong.collect()


def _clear_positions(feed: Feed) -> None:
    """Remove the positions from some rows, which makes these rows older than changes of the same time."""
    for rest, columns in enumerate(["kafka_offset = NULL", "kafka_topic = NULL, kafka_partition = NULL"]):
        feed.upserts.spark.sql(f"UPDATE {feed.upserts.table.written} SET {columns} WHERE id % 3 = {rest}")
        at = 4 - rest
        cleared = {key: (*row[:at], None, *row[at + 1 :]) for key, row in feed.rows.items() if key % 3 == rest}
        feed.rows |= cleared


def test_the_index_reads_only_the_new_files_after_a_compaction(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {})
    feed = Feed(upserts, seed=7)
    feed.land(100)
    _compact(upserts)
    feed.land(100)
    _compact(upserts)
    _compact(upserts)
    feed.land(100)
    assert upserts.table._index.filled() == 0
    upserting.sql(f"DELETE FROM {upserts.name} WHERE id = 1")
    feed.rows.pop(1, None)
    feed.land(20)
    assert upserts.table._index.filled() == 1
    feed.check()


def test_batches_are_merged_while_another_writer_commits_repeatedly(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {})
    feed = Feed(upserts, seed=3)
    feed.land(5)
    for number in range(6):
        upserting.sql(f"INSERT INTO {upserts.name} (id, v) VALUES ({-1 - number}, 'theirs')")
        feed.rows[-1 - number] = (-1 - number, None, "theirs", None, None)
        feed.land(5)
    assert upserts.table._index.filled() == 3
    assert upserts.table.merges_because == "another writer commits to the table between the batches"
    feed.check()


def test_the_index_is_not_refilled_after_a_fence_or_a_batch_without_changes(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {})
    upserts.land(0, 2, [(1, "a", "x", 0, 0), (2, "a", "y", 0, 1)])
    upserts.fence = upserts.table.take_fence()
    upserts.land(2, 4, [(7, None, None, 0, 2), (8, None, None, 0, 3)])
    upserts.land(4, 5, [(1, None, None, 0, 4)])
    assert upserts.rows("id, v") == [(2, "y")]
    assert upserts.table._index.filled() == 0


def test_an_upgrade_to_version_3_turns_position_deletes_into_deletion_vectors(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {})
    feed = Feed(upserts, seed=5)
    for _ in range(3):
        feed.land(40)
    upserting.sql(f"ALTER TABLE {upserts.name} SET TBLPROPERTIES ('format-version' = '3')")
    for _ in range(3):
        feed.land(40)
        assert upserts.table.merges_because is None
    assert upserts.table.take_notes() == ()
    feed.check()
    replaced = upserting.table(f"{upserts.name}.delete_files").select("file_format").distinct().collect()
    assert "PUFFIN" in {row[0] for row in replaced}


def test_a_delete_file_that_covers_several_data_files_is_counted_once(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {"properties": {"write.delete.granularity": "partition"}})
    feed = Feed(upserts, seed=6)
    for _ in range(3):
        feed.land(25)
    upserting.sql(f"DELETE FROM {upserts.name} WHERE id % 4 = 1")
    feed.rows = {key: row for key, row in feed.rows.items() if key % 4 != 1}
    for _ in range(4):
        feed.land(25)
        assert upserts.table.merges_because is None
        assert upserts.table.take_notes() == ()
    assert upserts.table._index.filled() == 1
    feed.check()
    upserts.restart(write="copy-on-write")
    for _ in range(4):
        feed.land(25)
        assert upserts.table.merges_because is None
        assert upserts.table.take_notes() == ()
    assert upserts.table._index.filled() == 1
    feed.check()


def test_copy_on_write_reads_and_rewrites_only_files_with_changed_rows(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {"write": "copy-on-write", "format_version": 3, "partition_by": ["id"]})
    upserts.land(0, 3, [(1, "a", "x", 0, 0), (2, "a", "x", 0, 1), (3, "a", "x", 0, 2)])
    upserts.restart(partition_by=["city"])
    _compact(upserts)
    upserts.land(3, 6, [(4, "b", "x", 0, 3), (5, "b", "x", 0, 4), (6, "b", "x", 0, 5)])
    before = {row.id: row for row in upserting.sql(f"SELECT *, _file, _row_id FROM {upserts.name}").collect()}
    upserts.land(6, 8, [(5, "a", "y", 0, 6), (6, None, None, 0, 7)])
    upserts.land(8, 9, [(4, "b", "z", 0, 8)])
    assert upserts.table.merges_because is None
    after = {row.id: row for row in upserting.sql(f"SELECT *, _file, _row_id FROM {upserts.name}").collect()}
    assert {key: row.v for key, row in after.items()} == {1: "x", 2: "x", 3: "x", 4: "z", 5: "y"}
    assert all(after[key] == before[key] for key in (1, 2, 3))
    assert upserting.table(f"{upserts.name}.delete_files").isEmpty()
    # The rows of the rewritten file keep their ids.
    upserts.land(9, 10, [(3, "a", "y", 0, 9)])
    kept = {row.id: row._row_id for row in upserting.sql(f"SELECT id, _row_id FROM {upserts.name}").collect()}
    assert all(kept[key] == before[key]._row_id for key in (1, 2))
    assert upserts.table.take_notes() == ()


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("STRING", "concat('k', n, repeat('x', 10000))"),
        ("DECIMAL(20, 3)", "CAST(n / 7 AS DECIMAL(20, 3))"),
        pytest.param("BINARY", "CAST(CAST(n AS STRING) AS BINARY)", marks=pytest.mark.slow),
        ("TIMESTAMP", "timestamp_micros(n * 1234567)"),
        pytest.param("TIMESTAMP_NTZ", "CAST(timestamp_micros(n * 1234567) AS TIMESTAMP_NTZ)", marks=pytest.mark.slow),
        pytest.param("DATE", "date_from_unix_date(CAST(n AS INT))", marks=pytest.mark.slow),
        pytest.param("INT", "CAST(-n AS INT)", marks=pytest.mark.slow),
    ],
)
def test_another_driver_finds_keys_of_every_type(upserting: SparkSession, type_: str, value: str) -> None:
    one = Upserts(upserting, {})
    name = f"{one.name}_typed"

    def table() -> UpsertTable:
        sink = IcebergSinkConfig(table=name, mode="upsert", keys=["k", "part"])
        return UpsertTable(upserting, sink, feed="shop")

    def changes(start: int, count: int) -> Any:
        rows = upserting.range(start, start + count).selectExpr("id AS at", "id % 50 AS n")
        return rows.selectExpr(
            f"CAST({value} AS {type_}) AS k", "n % 2 = 0 AS part", "at AS v", "'topic' AS kafka_topic",
            "0 AS kafka_partition", "at AS kafka_offset", "false AS lakefeed_deleted",
        )  # fmt: skip

    first = table()
    first.apply_schema(changes(0, 0).schema)
    for batch in range(3):
        own = first if batch < 2 else table()
        own.apply_schema(changes(0, 0).schema)
        ranges = OffsetRanges((OffsetRange("topic", 0, batch * 50, batch * 50 + 50),), {"topic": "one"})
        fence = own.take_fence()
        own.land(changes(batch * 50, 50), Commit("shop", batch, ranges, fence=fence), commit_id=f"{name}{batch}")
        assert own.merges_because is None
    rows = upserting.table(name).collect()
    assert sorted(row["v"] for row in rows) == list(range(100, 150))


@pytest.mark.parametrize(
    "settings", [{}, {"sort_by": ["v"]}, pytest.param({"write": "copy-on-write"}, marks=pytest.mark.slow)]
)
def test_a_key_that_is_repeated_after_its_row_was_written_has_one_row(
    upserting: SparkSession, settings: dict[str, Any]
) -> None:
    """A task writes its rows when they reach 32 MB; after that, the same keys come again, in any order."""
    upserts = Upserts(upserting, settings)
    changes = 120_000
    at = f"{changes - 1} - id"
    landed = upserts.land_range(changes, key=f"pmod({at}, 50000)", value=f"concat({at}, repeat('x', 1000))", offset=at)
    assert landed == 50_000
    found = upserting.table(upserts.name).selectExpr("count(*)", "count(DISTINCT id)", "min(kafka_offset)").collect()
    assert [tuple(row) for row in found] == [(50_000, 50_000, 70_000)]
    if "sort_by" in settings:
        _require_sorted(upserts, "v")
    upserts.land(changes, changes + 1, [(3, "a", "new", 0, changes)])
    assert upserts.table.merges_because is None
    assert upserting.table(upserts.name).count() == 50_000


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"key_index_mb": 0}, "key_index_mb is 0"),
        ({"order_by": ["v"], "on_delete": "mark"}, "order_by names v, which is string"),
    ],
)
def test_a_table_that_does_not_suit_the_index_is_merged_and_the_reason_is_shown(
    upserting: SparkSession, settings: dict[str, Any], reason: str
) -> None:
    upserts = Upserts(upserting, settings)
    upserts.land(0, 2, [(1, "a", "x", 0, 0), (2, "a", "y", 0, 1)])
    upserts.land(2, 3, [(1, "a", "z", 0, 2)])
    assert upserts.rows("id, v") == [(1, "z"), (2, "y")]
    assert reason in (upserts.table.merges_because or "")
    assert f"a MERGE, because {upserts.table.merges_because}" == upserts.table.lands_changes(lambda: None)
    upserts.name = upserts.name.replace("ns.u", "ns.new")
    columns = upserts.changes([]).schema
    upserts.table = UpsertTable(upserting, upserts.table._sink.model_copy(update={"table": upserts.name}), feed="shop")
    assert reason in upserts.table.lands_changes(lambda: columns)


def test_a_table_is_merged_if_its_keys_exceed_the_memory(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {"key_index_mb": 1})
    many = 60_000
    upserts.land_range(many)
    upserts.land(many, many + 1, [(7, "a", "new", 0, many)])
    assert upserts.table.merges_because == "the index of its keys would need more than 1 MB"
    assert upserting.table(upserts.name).count() == many
    assert upserting.table(upserts.name).filter("v = 'new'").count() == 1
    [note] = upserts.table.take_notes()
    assert "is a MERGE" in note
    upserts.land(many + 1, many + 2, [(7, "a", "newer", 0, many + 1)])
    assert upserts.table.take_notes() == ()


def test_a_small_first_batch_of_a_run_on_a_large_table_is_merged(
    upserting: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upsert, "FEW_ROWS", 100)
    upserts = Upserts(upserting, {})
    many = 1_200
    upserts.land_range(many)
    assert upserts.table.merges_because is None
    upserts.restart()
    upserts.land(many, many + 1, [(7, "a", "merged", 0, many)])
    assert upserts.table.merges_because == "the first batch is small beside the table"
    upserts.land(many + 1, many + 2, [(7, "a", "indexed", 0, many + 1)])
    assert upserts.table.merges_because is None
    assert upserts.rows("v", f"(SELECT * FROM {upserts.name} WHERE id = 7)") == [("indexed",)]


def test_a_table_with_two_rows_of_a_key_is_not_indexed(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {})
    upserts.land(0, 1, [(1, "a", "x", 0, 0)])
    upserting.sql(f"INSERT INTO {upserts.name} SELECT * FROM {upserts.name}")
    upserts.land(1, 2, [(2, "a", "y", 0, 1)])
    assert upserts.table.merges_because == "a key has two rows in the table"
    assert upserts.rows("id") == [(1,), (1,), (2,)]


class Spoiled:
    """The entries of a driver's index, which a test changes to simulate a fault of the index."""

    def __init__(self, upserts: Upserts) -> None:
        self.jvm: Any = upserts.spark._jvm
        self.java: Any = upserts.spark.sparkContext._gateway
        self.table = upserts.table._index
        for name in ("places", "table"):
            field = self.table.getClass().getDeclaredField(name)
            field.setAccessible(True)
            self.table = field.get(self.table)

    def call(self, name: str, *arguments: int) -> Any:
        [method] = [each for each in self.table.getClass().getDeclaredMethods() if each.getName() == name]
        method.setAccessible(True)
        given = self.java.new_array(self.jvm.java.lang.Object, len(arguments))
        for at, kind in enumerate(method.getParameterTypes()):
            whole = self.jvm.java.lang.Long if kind.getName() == "long" else self.jvm.java.lang.Integer
            given[at] = whole.valueOf(str(arguments[at]))
        return method.invoke(self.table, given)

    def place(self, key: int) -> tuple[int, int, int]:
        assert self.call("find", _mixed(key), 0)
        return self.call("file"), self.call("position"), self.call("partition")

    def order(self, key: int) -> Any:
        """Return the times in the segment of the index that contains the key."""
        assert self.call("find", _mixed(key), 0)
        found = self.table
        for name in ("segment", "order"):
            field = found.getClass().getDeclaredField(name)
            field.setAccessible(True)
            found = field.get(found)
        return found

    def put(self, key: int, place: tuple[int, int, int]) -> None:
        self.call("put", _mixed(key), 0, *place)

    def remove(self, key: int) -> None:
        self.call("remove", _mixed(key), 0)


def _mixed(key: int) -> int:
    """Return the hash by which the index stores a number: the finalizer of MurmurHash3."""
    all_bits = 2**64 - 1
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 1):
        key = (key ^ key >> 33) * factor & all_bits
    return key - 2**64 if key >> 63 else key


@pytest.mark.parametrize(
    ("spoil", "doubt", "write"),
    [
        (lambda index: index.remove(1), "10 rows by its summary, and the index 9 keys", "merge-on-read"),
        *(
            (
                lambda index: [index.put(key, place) for key, place in [(1, index.place(2)), (2, index.place(1))]],
                "another key",
                write,
            )
            for write in ("merge-on-read", "copy-on-write")
        ),
        (lambda index: index.put(1, (index.place(1)[0], 7_000, 0)), "behind its end", "merge-on-read"),
        (lambda index: index.put(1, index.place(12)), "another key", "merge-on-read"),
        (lambda index: index.put(1, (index.place(1)[0], 1, 0)), "is deleted", "merge-on-read"),
    ],
)
def test_a_wrong_index_entry_is_noticed_in_the_commit_and_the_table_stays_correct(
    upserting: SparkSession, spoil: Any, doubt: str, write: str
) -> None:
    """In the last case, key 1 points at position 1 of the first file, where the old row of key 11 was."""
    upserts = Upserts(upserting, {"write": write})
    upserts.land(0, 10, [(key, "a", "x", 0, at) for at, key in enumerate([1, 11, 2, 3, 4, 5, 6, 7, 8, 9])])
    upserts.land(10, 11, [(11, "a", "y", 0, 10)])
    upserts.land(11, 13, [(12, "a", "x", 0, 11), (9, None, None, 0, 12)])
    spoil(Spoiled(upserts))
    upserts.land(13, 14, [(1, "a", "new", 0, 13)])
    [note] = upserts.table.take_notes()
    assert doubt in note
    assert "verify --deep" in note
    upserts.land(14, 16, [(2, "a", "new", 0, 14), (9, "a", "z", 0, 15)])
    assert upserts.table.merges_because is None
    assert upserts.rows("id, v") == [
        (1, "new"), (2, "new"), *((key, "x") for key in range(3, 9)), (9, "z"), (11, "y"), (12, "x")
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", [-5, 5])
def test_a_wrong_time_in_the_index_is_noticed_in_the_commit(upserting: SparkSession, wrong: int) -> None:
    """Without the check, the change of time 2 would replace the row of time 3, or the change of time 4 would not."""
    upserts = Upserts(upserting, {"order_by": ["at0"], "on_delete": "mark"}, times=["n"])
    upserts.land(0, 1, [(1, "a@3", "x", 0, 0)])
    order = Spoiled(upserts).order(1)
    for at in range(len(order)):
        order[at] = wrong
    time = 2 if wrong < 0 else 4
    upserts.land(1, 2, [(1, f"a@{time}", "y", 0, 1)])
    [note] = upserts.table.take_notes()
    assert "another key" in note
    assert upserts.rows("id, v") == [(1, "x" if time == 2 else "y")]


def test_the_smallest_number_in_order_by_is_older_than_the_next_number(upserting: SparkSession) -> None:
    """The number -2^63 stands for null in the index, so only a MERGE can land the value -2^63."""
    upserts = Upserts(upserting, {"order_by": ["at0"], "on_delete": "mark"}, times=["-9223372036854775807 - n"])
    upserts.land(0, 2, [(1, "a@0", "x", 0, 0), (2, "a", "x", 0, 1)])
    assert upserts.table.merges_because is None
    upserts.land(2, 4, [(1, "b@1", "old", 0, 2), (2, "b@1", "y", 0, 3)])
    assert upserts.table.merges_because == "the index could not land what it had written"
    assert upserts.rows("id, v") == [(1, "x"), (2, "y")]
    upserts.land(4, 5, [(2, "c@0", "z", 0, 4)])
    assert upserts.table.merges_because == "a row of the table has -2^63 in a column of order_by"
    assert upserts.rows("id, v") == [(1, "x"), (2, "z")]


def test_of_two_changes_with_equal_times_the_change_of_the_later_partition_is_newer(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {"order_by": ["at0"], "on_delete": "mark"}, times=["n"])
    feed = Feed(upserts, 0, partitions=2, times=[lambda number: number])
    feed.ends = [20, 10]
    changes: list[list[Change]] = [[(key, "a@1", f"{offset}", part, offset + key) for key in range(10)]
                                   for part, offset in ((0, 10), (1, 0), (0, 20), (1, 10))]  # fmt: skip
    feed._write([10, 0], [*changes[0], *changes[1]])
    feed.check()
    feed.ends = [30, 20]
    feed._write([20, 10], [*changes[2], *changes[3][:5]])
    feed.check()
    assert upserts.table.merges_because is None


def test_a_batch_that_has_only_old_changes_adds_no_file_to_the_table(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {"order_by": ["at0"], "on_delete": "mark"}, times=["n"])
    upserts.land(0, 2, [(1, "a@3", "x", 0, 0), (2, "a@4", "y", 0, 1)])
    files = [row.file_path for row in upserting.table(f"{upserts.name}.files").collect()]
    assert upserts.land(2, 5, [(1, "b@2", "old", 1, 2), (2, "b", None, 0, 2), (2, "b@3", "old", 0, 3)]) == 0
    assert upserts.table.merges_because is None
    assert [row.file_path for row in upserting.table(f"{upserts.name}.files").collect()] == files
    newest = upserts.commits()[0].upserts
    assert newest is not None
    assert (newest.changes, newest.superseded, newest.void) == (3, 1, 2)
    folder = Path(files[0].removeprefix("file:")).parent
    assert {path.name for path in folder.glob("*.parquet")} == {Path(file).name for file in files}
    upserts.land(5, 6, [(2, "b@5", "new", 0, 5)])
    assert upserts.rows("id, city, v") == [(1, "a@3", "x"), (2, "b@5", "new")]
    assert upserts.table.take_notes() == ()


def test_a_table_with_a_required_key_is_indexed(upserting: SparkSession) -> None:
    name = f"{CATALOG}.ns.u{uuid.uuid4().hex[:8]}"
    rest = "v STRING, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT"
    upserting.sql(f"CREATE TABLE {name} (id BIGINT NOT NULL, city STRING, {rest})")
    upserts = Upserts(upserting, {}, name)
    upserts.land(0, 2, [(1, "a", "x", 0, 0), (2, "a", "x", 0, 1)])
    upserts.land(2, 4, [(1, "b", "y", 0, 2), (2, None, None, 0, 3)])
    assert upserts.table.merges_because is None
    assert upserts.rows("id, city, v") == [(1, "b", "y")]


def test_a_batch_is_merged_only_if_a_change_lacks_values(upserting: SparkSession) -> None:
    """A change lacks a value if Debezium writes its placeholder, because the database has not logged the value."""
    upserts, lacking = Upserts(upserting, {}), "__debezium_unavailable_value"
    upserts.table.unavailable = Unavailable(lacking)
    ways: list[str | None] = []
    for start, city in enumerate(["a", lacking, "b", lacking, lacking, lacking, "c"]):
        upserts.land(start, start + 1, [(1, city, f"v{start}", 0, start)])
        ways.append(upserts.table.merges_because)
        assert upserts.rows("city, v") == [({lacking: "ab"[start > 2]}.get(city, city), f"v{start}")]
    left, rest = "the index could not land what it had written", "changes lack values, which stay as they are stored"
    assert ways == [None, left, None, left, left, left, rest]
