"""Changes of keyed rows merged into a table on a SQLite catalog and local files."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.ledger.snapshot_summary import COMMIT_ID, Backfill, Commit, PositionReset
from lakefeed.local.home import make_catalog
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode.unavailable import Unavailable
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.iceberg.upsert import UpsertTable
from tests.support.catalogs import SqliteCase
from tests.support.feed_table import refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "upserts"
COLUMNS = (
    "id BIGINT, city STRING, v STRING, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT, "
    "lakefeed_deleted BOOLEAN"
)
Change = tuple[int | None, str | None, str | None, int, int]
"""id, city, value (None deletes), partition, offset"""


@dataclass
class Upserts:
    """One test's table, and the verbs of a feed for it."""

    spark: SparkSession
    settings: dict[str, Any]
    name: str = field(default_factory=lambda: f"{CATALOG}.ns.u{uuid.uuid4().hex[:8]}")
    fence: str | None = None

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, **settings: Any) -> None:
        self.settings |= settings
        block = {"table": self.name, "mode": "upsert", "keys": ["id"], **self.settings}
        if block.pop("with_history", False):
            block["history"] = self.history
        self.table = UpsertTable(self.spark, IcebergSinkConfig.model_validate(block), feed="shop")
        self.table.apply_schema(self.changes([]).schema)
        self.fence = self.table.take_fence()

    @property
    def history(self) -> str:
        return f"{self.name}_history"

    def changes(self, changes: Iterable[Change], topic: str = "topic") -> Any:
        rows = [
            (key, city, value, topic, partition, offset, value is None)
            for key, city, value, partition, offset in changes
        ]
        # Not deterministic, as a stream's rows are: their verdicts are counted on the way.
        return self.spark.createDataFrame(rows, COLUMNS).filter("rand() >= 0")

    def batch(self, start: int, end: int, *, topic_id: str = "one") -> Commit:
        ranges = OffsetRanges((OffsetRange("topic", 0, start, end),), {"topic": topic_id})
        return Commit("shop", start, ranges, fence=self.fence)

    def land(self, start: int, end: int, changes: Sequence[Change], **batch: Any) -> int | None:
        return self.table.land(self.changes(changes), self.batch(start, end, **batch), commit_id=uuid.uuid4().hex)

    def rows(self, columns: str = "id, city, v, kafka_offset", table: str | None = None) -> list[tuple[Any, ...]]:
        found = self.spark.sql(f"SELECT {columns} FROM {table or self.name} ORDER BY ALL")
        return [tuple(row) for row in found.collect()]

    def commits(self) -> list[Commit]:
        return list(self.table.commits())


def _land(upserts: Upserts, start: int, end: int) -> None:
    upserts.land(start, end, [])


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> SqliteCase:
    """One catalog is enough here: on the others the commit check is held by tests of its own."""
    folder = tmp_path_factory.mktemp("upserts")
    make_catalog(folder / "catalog.db")
    return SqliteCase(name=CATALOG, folder=folder)


@pytest.fixture(scope="module")
def checked(spark: SparkSession, catalog: SqliteCase) -> SparkSession:
    """The session with that catalog."""
    catalog.declare(spark)
    spark.sql(f"CREATE NAMESPACE {CATALOG}.ns")
    return spark


@pytest.fixture(
    params=[
        ("merge-on-read", 2),
        pytest.param(("copy-on-write", 2), marks=pytest.mark.slow),
        pytest.param(("merge-on-read", 3), marks=pytest.mark.slow),
        pytest.param(("copy-on-write", 3), marks=pytest.mark.slow),
    ],
    ids=lambda how: f"{how[0]}-{how[1]}",
)
def upserts(checked: SparkSession, request: pytest.FixtureRequest) -> Upserts:
    write, version = request.param
    return Upserts(checked, {"write": write, "format_version": version})


@pytest.fixture
def plain(checked: SparkSession) -> Upserts:
    return Upserts(checked, {})


@pytest.mark.quick
def test_the_newest_change_of_a_key_wins_within_a_batch_and_against_the_table(upserts: Upserts) -> None:
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
def test_the_same_batch_twice_leaves_the_table_as_it_is_and_the_ledger_knows_it(upserts: Upserts) -> None:
    changes: list[Change] = [(1, "a", "x", 0, 0), (2, "a", "y", 0, 1), (2, "a", None, 0, 2)]
    upserts.land(0, 3, changes)
    before = upserts.rows()
    assert upserts.table.has(upserts.batch(0, 3))
    # A rewind without deleting: all is read again.
    move = PositionReset("rewind", {("topic", 0): (3, 0)})
    upserts.table.ledger.record_move(
        Commit("shop", 3, move.reaches(upserts.batch(3, 3).ranges), upserts.fence, move=move), commit_id="rewound"
    )
    assert upserts.land(0, 3, changes) == 0
    assert upserts.rows() == before
    assert upserts.commits()[0].ranges == upserts.batch(0, 3).ranges


def test_a_batch_that_changes_nothing_is_in_the_ledger(upserts: Upserts) -> None:
    assert upserts.land(0, 2, [(7, None, None, 0, 0)]) == 0
    assert upserts.land(2, 2, []) == 0
    assert upserts.land(2, 4, [(7, None, None, 0, 2)]) == 0
    assert [each.ranges.ranges[0].end for each in upserts.commits()] == [4, 2, 2]
    refused(lambda: _land(upserts, 5, 6), "topic-0 begins at 5, the table ends at 4")


@pytest.mark.parametrize(
    "settings", [{"partition_by": ["city"], "write": "copy-on-write"}, {"partition_by": ["bucket(4, id)", "city"]}]
)
def test_a_row_whose_partition_column_changes_moves_and_is_there_once(
    checked: SparkSession, settings: dict[str, Any]
) -> None:
    upserts = Upserts(checked, settings)
    upserts.land(0, 2, [(1, "a", "x", 0, 0), (2, "a", "y", 0, 1)])
    upserts.land(2, 4, [(1, "b", "x2", 0, 2), (2, None, None, 0, 3)])
    assert upserts.rows() == [(1, "b", "x2", 2)]
    upserts.land(4, 5, [(1, "a", "x3", 0, 4)])
    assert upserts.rows() == [(1, "a", "x3", 4)]


def test_marked_deletes_are_remembered_when_an_older_change_comes_late(checked: SparkSession) -> None:
    upserts = Upserts(checked, {"on_delete": "mark"})
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
def test_a_table_that_forgets_deletes_takes_nothing_that_comes_late(plain: Upserts) -> None:
    for suffix in (".backfills", ".replays"):
        with pytest.raises(ConfigError, match="could bring a deleted key back"):
            plain.table.take_fence(suffix)


def test_a_key_in_two_partitions_stops_the_feed_unless_a_column_orders_it(checked: SparkSession) -> None:
    upserts = Upserts(checked, {})
    with pytest.raises(ConfigError, match="changes in more than one partition") as raised:
        upserts.land(0, 2, [(1, "a", "x", 0, 0), (1, "a", "y", 1, 0)])
    assert "topic topic, partition 0, offset 0" in str(raised.value)
    upserts.land(0, 2, [(1, "a", "x", 0, 1)])
    with pytest.raises(ConfigError, match="topic topic, partition 1, offset 0"):
        upserts.land(2, 3, [(1, "a", "y", 1, 0)])
    assert upserts.rows() == [(1, "a", "x", 1)]
    ordered = Upserts(checked, {"order_by": ["v"], "on_delete": "mark"})
    ordered.land(0, 2, [(1, "a", "2018", 0, 0), (1, "b", "2020", 1, 0), (2, "a", "2019", 0, 1)])
    ordered.land(2, 4, [(1, "c", "2019", 2, 9), (2, "b", "2019", 1, 1)])
    assert ordered.rows() == [(1, "b", "2020", 0), (2, "b", "2019", 1)]


def test_a_change_without_a_key_is_named(plain: Upserts) -> None:
    with pytest.raises(ConfigError, match="a change has no key: id is null") as raised:
        plain.land(0, 2, [(1, "a", "x", 0, 0), (None, "a", "y", 0, 1)])
    assert "topic topic, partition 0, offset 1" in str(raised.value)
    assert plain.rows() == []


def test_a_topic_that_was_recreated_is_older_only_by_a_word(plain: Upserts) -> None:
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


def test_partitions_and_order_follow_the_file_in_a_running_feed(checked: SparkSession) -> None:
    upserts = Upserts(checked, {"partition_by": ["city"]})
    upserts.land(0, 2, [(1, "a", "x", 0, 0), (2, "b", "y", 0, 1)])
    upserts.restart(partition_by=["bucket(4, id)"], sort_by=["city desc"])
    upserts.land(2, 4, [(1, "c", "x2", 0, 2), (3, "b", "z", 0, 3)])
    upserts.restart()
    assert upserts.rows("id, city") == [(1, "c"), (2, "b"), (3, "b")]
    table = upserts.table.ledger.loaded()
    assert [str(each.name()) for each in table.spec().fields()] == ["id_bucket_4"]
    assert "city DESC" in str(table.sortOrder()) or "DESC" in str(table.sortOrder())
    assert {int(row.spec_id) for row in checked.sql(f"SELECT spec_id FROM {upserts.name}.files").collect()} >= {0}


def test_rows_of_another_writer_are_older(upserts: Upserts) -> None:
    upserts.spark.sql(f"INSERT INTO {upserts.name} (id, city, v) VALUES (9, 'z', 'foreign'), (8, 'z', 'foreign')")
    upserts.land(0, 3, [(9, "a", "ours", 0, 1), (5, "a", "x", 0, 2)])
    assert upserts.rows() == [(5, "a", "x", 2), (8, "z", "foreign", None), (9, "a", "ours", 1)]


def test_of_two_that_insert_the_same_keys_at_once_neither_makes_a_second_copy(
    checked: SparkSession, catalog: SqliteCase
) -> None:
    one = Upserts(checked, {})
    apart = checked.newSession()
    catalog.declare(apart)
    other = UpsertTable(apart, IcebergSinkConfig(table=one.name, mode="upsert", keys=["id"]), feed="other")
    other.apply_schema(one.changes([]).schema)
    for batch in range(3):
        changes: list[Change] = [(batch * 10 + key, "a", "x", 0, batch * 10 + key) for key in range(10)]
        theirs = Commit("other", batch, one.batch(batch * 10, batch * 10 + 10).ranges)
        same = apart.createDataFrame(one.changes(changes).collect(), COLUMNS)
        with ThreadPoolExecutor(2) as pool:
            landings = [
                pool.submit(one.land, batch * 10, batch * 10 + 10, changes),
                pool.submit(other.land, same, theirs, commit_id=uuid.uuid4().hex),
            ]
            # The second committer has to see the rows of the first.
            assert sum(landing.result() or 0 for landing in landings) == 10
    assert one.rows("id") == [(key,) for key in range(30)]


def test_a_merge_whose_table_another_writer_has_changed_is_run_again(
    plain: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, failures = plain.table.ledger.run, ["Found conflicting files that can contain records matching"]

    def conflicted(*arguments: Any, **named: Any) -> None:
        if failures:
            raise RuntimeError(failures.pop())
        run(*arguments, **named)

    monkeypatch.setattr(plain.table.ledger, "run", conflicted)
    assert plain.land(0, 1, [(1, "a", "x", 0, 0)]) == 1


def test_a_merge_comes_through_beside_a_process_that_rewrites_its_files_all_the_time(
    upserts: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, ledger, ended, asked = upserts.spark, upserts.table.ledger, threading.Event(), list[int]()
    for_quiet = ledger.ask_for_quiet

    def ask() -> None:
        asked.append(1)
        for_quiet()

    monkeypatch.setattr(ledger, "ask_for_quiet", ask)

    def rewrite() -> None:
        """It knows nothing of the turns in this process."""
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


@pytest.mark.quick
def test_the_history_has_every_change_and_the_same_ranges(checked: SparkSession) -> None:
    upserts = Upserts(checked, {"with_history": True})
    first: list[Change] = [(1, "a", "x", 0, 0), (1, "a", "y", 0, 1), (1, None, None, 0, 2)]
    upserts.land(0, 3, first)
    upserts.land(3, 5, [(2, "a", "z", 0, 4)])
    expected = [(0, 1, "x", False), (1, 1, "y", False), (2, 1, None, True), (4, 2, "z", False)]
    assert upserts.rows("kafka_offset, id, v, lakefeed_deleted", upserts.history) == expected
    assert upserts.rows() == [(2, "a", "z", 4)]


def test_a_crash_between_history_and_table_is_made_good(checked: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    upserts = Upserts(checked, {"with_history": True})
    upserts.land(0, 2, [(1, "a", "x", 0, 1)])

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    for ranges in ((2, 4), (2, 5)):
        # The second time the batch is another one, as after a lost checkpoint.
        upserts.restart()
        monkeypatch.setattr(upserts.table, "_merge", crash)
        changes: list[Change] = [(2, "a", str(offset), 0, offset) for offset in range(*ranges)]
        with pytest.raises(KeyboardInterrupt):
            upserts.land(*ranges, changes)
    upserts.restart()
    upserts.land(2, 5, [(2, "a", str(offset), 0, offset) for offset in range(2, 5)])
    assert upserts.rows("kafka_offset", upserts.history) == [(1,), (2,), (3,), (4,)]
    assert upserts.rows("id, kafka_offset") == [(1, 1), (2, 4)]


def test_what_comes_late_is_in_the_history_once(checked: SparkSession) -> None:
    upserts = Upserts(checked, {"with_history": True, "on_delete": "mark"})
    upserts.land(10, 12, [(1, "a", "x", 0, 11)])
    fence = upserts.table.take_fence(".backfills")
    ranges = OffsetRanges((OffsetRange("topic", 0, 0, 10),), {"topic": "one"})
    old = upserts.changes([(1, "a", "older", 0, 5), (1, "a", "oldest", 0, 4)])
    for commit_id in ("cut-off", "backfill"):
        commit = Backfill("shop", ranges, fence)
        upserts.table._history.land_changes(old, commit, commit_id=commit_id, keys=["id"])  # type: ignore[union-attr]
    upserts.table.land(old, Backfill("shop", ranges, fence), commit_id="backfill")
    assert upserts.rows("kafka_offset", upserts.history) == [(4,), (5,), (11,)]
    assert upserts.rows("id, kafka_offset") == [(1, 11)]


def test_a_rewound_feed_rewinds_its_history(checked: SparkSession) -> None:
    upserts = Upserts(checked, {"with_history": True})
    upserts.land(0, 4, [(1, "a", str(offset), 0, offset) for offset in range(4)])
    move = PositionReset("rewind", {("topic", 0): (4, 1)})
    reached = move.reaches(upserts.batch(4, 4).ranges)
    upserts.table.ledger.record_move(Commit("shop", 4, reached, upserts.fence, move=move), commit_id="rewound")
    upserts.land(1, 6, [(1, "a", str(offset), 0, offset) for offset in range(1, 6)])
    assert upserts.rows("kafka_offset", upserts.history) == [(offset,) for offset in range(6)]
    assert upserts.rows("id, kafka_offset") == [(1, 5)]


KEYS = (
    "at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, text STRING, digits DECIMAL(38,18), bytes BINARY, number BIGINT, "
    "flag BOOLEAN"
)
REPEATED_HOUR = 1_761_442_200_000_000
"""2025-10-26T01:30Z, the second 02:30 of that day in Berlin, in microseconds."""

HOSTILE: list[tuple[int, int, str | None, Decimal, bytes, int, bool]] = [
    (REPEATED_HOUR, -800_000, "${foo}", Decimal("1e-18"), b"\0\xff", 2**63 - 1, True),
    (REPEATED_HOUR - 3_600_000_000, 0, "${env:HOME}", Decimal("-99999999999999999999.5"), b"", -(2**63), False),
    (-62_135_596_800_000_000, -719_162, 'it\'s \\ "x"\n;--', Decimal(0), b"'", 0, True),
    (-12_219_292_800_000_001, -141_428, "x" * 100_000, Decimal("0.1"), b"${foo}", -1, True),
    (253_402_300_800_000_000, 2_932_897, "\U0001f600", Decimal("99999999999999999999"), b"\xf0", 1, False),
    # Text that is no UTF-8: of these bytes.
    (1_711_846_800_000_000, 1, None, Decimal(7), b"\xff", 7, True),
    (0, 2, "", Decimal("-0.0"), b"x", 8, False),
]
"""Values of keys: microseconds, days, text, ... Each row has one of each type."""


@pytest.mark.parametrize(
    "alone", [HOSTILE[:1], pytest.param([*HOSTILE[1:], HOSTILE[0]], marks=pytest.mark.slow)], ids=["one", "all"]
)
def test_a_key_of_any_type_and_value_is_one_row(checked: SparkSession, alone: list[tuple[Any, ...]]) -> None:
    keys = [column.split()[0] for column in KEYS.split(", ")]
    name, columns = f"{CATALOG}.ns.k{uuid.uuid4().hex[:8]}", ("at", "day", "text", "digits", "bytes", "number", "flag")
    sink = IcebergSinkConfig.model_validate({"table": name, "mode": "upsert", "keys": keys, "sort_by": ["text"]})
    table = UpsertTable(checked, sink, feed="shop")

    def changes(rows: list[tuple[Any, ...]], start: int) -> Any:
        placed = [(*row, start + at) for at, row in enumerate(rows)]
        types = "at BIGINT, day INT, text STRING, digits DECIMAL(38,18), bytes BINARY, number BIGINT, flag BOOLEAN"
        made = {"at": "timestamp_micros(at)", "day": "date_from_unix_date(day)", "text": "ifnull(text, STRING(bytes))"}
        return checked.createDataFrame(placed, f"{types}, kafka_offset BIGINT").selectExpr(
            *(f"{made.get(column, column)} AS {column}" for column in columns),
            "CAST(timestamp_micros(at) AS TIMESTAMP_NTZ) AS local",
            "'topic' AS kafka_topic",
            "0 AS kafka_partition",
            "kafka_offset",
            "false AS lakefeed_deleted",
        )

    zone = str(checked.conf.get("spark.sql.session.timeZone"))
    checked.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        table.apply_schema(changes([], 0).schema)
        fence, end = table.take_fence(), 0
        for rows in (HOSTILE, *([row] for row in alone), HOSTILE[4:6], HOSTILE):
            ranges = OffsetRanges((OffsetRange("topic", 0, end, end + len(rows)),), {"topic": "one"})
            commit = Commit("shop", end, ranges, fence=fence)
            assert table.land(changes(rows, end), commit, commit_id=uuid.uuid4().hex) == len(rows)
            end += len(rows)
            assert checked.table(name).count() == len(HOSTILE)
    finally:
        checked.conf.set("spark.sql.session.timeZone", zone)


def test_a_key_that_the_table_has_as_uuid_is_one_row(checked: SparkSession) -> None:
    """Iceberg orders UUIDs otherwise than Spark orders their texts."""
    name = f"{CATALOG}.ns.u{uuid.uuid4().hex[:8]}"
    java: Any = checked.sparkContext._jvm
    checked.sql(f"CREATE TABLE {name} (v INT, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT)")
    loaded = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(checked._jsparkSession, name)
    loaded.updateSchema().addColumn("id", java.org.apache.iceberg.types.Types.UUIDType.get()).commit()
    sink = IcebergSinkConfig.model_validate({"table": name, "mode": "upsert", "keys": ["id"]})
    table = UpsertTable(checked, sink, feed="shop")
    ids = [str(uuid.UUID(int=part << 120)) for part in (0x00, 0x7F, 0x80, 0xFF)]
    columns = "id STRING, v INT, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT, lakefeed_deleted BOOLEAN"
    table.apply_schema(checked.createDataFrame([], columns).schema)
    fence = table.take_fence()
    for start in (0, 4):
        rows = [(each, start, "topic", 0, start + at, False) for at, each in enumerate(ids)]
        ranges = OffsetRanges((OffsetRange("topic", 0, start, start + 4),), {"topic": "one"})
        commit = Commit("shop", start, ranges, fence=fence)
        table.land(checked.createDataFrame(rows, columns), commit, commit_id=uuid.uuid4().hex)
    assert [row.v for row in checked.table(name).collect()] == [4] * 4


def test_a_table_of_other_rows_is_not_taken_over(plain: Upserts, checked: SparkSession) -> None:
    plain.land(0, 1, [(1, "a", "x", 0, 0)])
    with pytest.raises(ConfigError, match="made with keys and on_delete 'id remove'"):
        plain.restart(on_delete="mark")
    with pytest.raises(ConfigError, match="made with keys"):
        plain.restart(on_delete="remove", keys=["id", "city"])
    plain.restart(keys=["id"], write="copy-on-write")
    assert plain.table.ledger.properties()["write.merge.mode"] == "copy-on-write"
    appended = Upserts.__new__(Upserts)
    appended.spark, appended.settings, appended.fence = checked, {}, None
    appended.name = f"{CATALOG}.ns.a{uuid.uuid4().hex[:8]}"
    checked.sql(f"CREATE TABLE {appended.name} ({COLUMNS}) USING iceberg TBLPROPERTIES ('format-version'='2')")
    writer = appended.changes([(1, "a", "x", 0, 0)]).writeTo(appended.name)
    for key, value in {**appended.batch(0, 1).properties(), COMMIT_ID: "c"}.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()
    with pytest.raises(ConfigError, match="has appended to this table"):
        appended.restart()


def test_renamed_keys_are_named_in_the_file_as_the_aliases_rename_them(plain: Upserts) -> None:
    plain.land(0, 1, [(1, "a", "x", 0, 0)])
    field = {"name": "number", "type": ["null", "long"], "default": None, "aliases": ["id"]}
    schema = StoredSchema(json.dumps({"type": "record", "name": "R", "fields": [field]}), frozenset({2}))
    renamed = plain.changes([]).withColumnRenamed("id", "number").schema

    def start(**settings: Any) -> None:
        block = {"table": plain.name, "mode": "upsert", "keys": ["number"], **settings}
        plain.table = UpsertTable(plain.spark, IcebergSinkConfig.model_validate(block), feed="shop")
        plain.table.apply_schema(renamed, schema)

    for wrong in ({"keys": ["number", "city"]}, {"keys": ["city"]}, {"on_delete": "mark"}):
        with pytest.raises(ConfigError, match="made with keys and on_delete 'id remove'"):
            start(**wrong)
    start()
    plain.fence = plain.table.take_fence()
    rows = plain.changes([(1, "b", "y", 0, 1), (2, "c", "z", 0, 2)]).withColumnRenamed("id", "number")
    plain.table.land(rows, plain.batch(1, 3), commit_id=uuid.uuid4().hex)
    assert plain.rows("number, city, v") == [(1, "b", "y"), (2, "c", "z")]
    start()


@pytest.mark.parametrize(
    ("columns", "because"),
    [
        ("id BIGINT, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT", "lakefeed_deleted"),
        ("key BIGINT, " + COLUMNS.partition(", ")[2], "an upsert needs the column id"),
        ("id DOUBLE, " + COLUMNS.partition(", ")[2], "the column id is double, which can be no key"),
    ],
)
def test_rows_that_cannot_be_upserted_are_refused(checked: SparkSession, columns: str, because: str) -> None:
    sink = IcebergSinkConfig(table=f"{CATALOG}.ns.never", mode="upsert", keys=["id"])
    table = UpsertTable(checked, sink, feed="shop")
    with pytest.raises(ConfigError, match=because):
        table.apply_schema(checked.createDataFrame([], columns).schema)
    assert not checked.catalog.tableExists(sink.table)


PLACEHOLDER = "__debezium_unavailable_value"
DOCUMENTS = (
    "id BIGINT, v STRING, data BINARY, tags ARRAY<STRING>, numbers ARRAY<INT>, map MAP<STRING, STRING>, "
    "inner STRUCT<a: STRING, `b.c`: STRUCT<d: BINARY, e: INT>>, kafka_topic STRING, kafka_partition INT, "
    "kafka_offset BIGINT, lakefeed_deleted BOOLEAN"
)
LACKING = (
    PLACEHOLDER,
    PLACEHOLDER.encode(),
    [PLACEHOLDER],
    list(PLACEHOLDER.encode()),
    {PLACEHOLDER: PLACEHOLDER},
    (PLACEHOLDER, (PLACEHOLDER.encode(), 9)),
)


def _document(at: int) -> tuple[Any, ...]:
    return (f"v{at}", f"d{at}".encode(), [f"t{at}", "t"], [at, 2], {"k": f"m{at}"}, (f"a{at}", (f"e{at}".encode(), at)))


@pytest.mark.parametrize("on_delete", ["remove", "mark"])
def test_a_value_that_its_event_lacks_stays_as_it_is_stored_or_as_an_older_change_has_it(
    checked: SparkSession, on_delete: str
) -> None:
    upserts = Upserts(checked, {"on_delete": on_delete, "with_history": True, "order_by": []})

    def land(start: int, *documents: tuple[int, tuple[Any, ...] | None]) -> None:
        values = [
            (key, *(document or (None,) * 6), "topic", 0, start + at, document is None)
            for at, (key, document) in enumerate(documents)
        ]
        rows = checked.createDataFrame(values, DOCUMENTS)
        upserts.table.apply_schema(rows.schema)
        upserts.table.unavailable = Unavailable(PLACEHOLDER)
        upserts.table.land(rows, upserts.batch(start, start + len(documents)), commit_id=uuid.uuid4().hex)

    def stored() -> dict[int, tuple[Any, ...]]:
        where = "" if on_delete == "remove" else "WHERE NOT lakefeed_deleted"
        found = checked.sql(f"SELECT * FROM {upserts.name} {where}").collect()
        return {row.id: (row.v, bytes(row.data or b""), row.tags, row.numbers, row.map, row.inner) for row in found}

    def expected(at: int, e: int | None = None) -> tuple[Any, ...]:
        *plain, (a, (d, number)) = _document(at)
        return (*plain, (a, (bytearray(d), number if e is None else e)))

    nothing = (None, b"", None, None, None, (None, (None, 9)))
    land(0, (1, _document(1)), (2, _document(2)))
    # Stored rows keep what the event lacks; a new key has none; a value in the same batch is newer than the stored one.
    land(2, (1, LACKING), (3, LACKING), (2, _document(4)), (2, LACKING), (2, (None, *LACKING[1:])))
    assert stored() == {1: expected(1, 9), 2: (None, *expected(4, 9)[1:]), 3: nothing}
    # What was before a delete is gone, in the table as in the batch.
    land(7, (1, None), (1, LACKING), (2, None), (4, _document(5)), (4, None), (4, LACKING))
    assert stored() == {1: nothing, 3: nothing, 4: nothing}
    land(13, (2, LACKING))
    assert stored()[2] == nothing
    upserts.table.unavailable = Unavailable(PLACEHOLDER)
    assert checked.sql(f"SELECT 1 FROM {upserts.history} WHERE v = '{PLACEHOLDER}'").collect() == []
    upserts.table.unavailable = Unavailable(PLACEHOLDER, "keep")
    rows = checked.createDataFrame([(5, *LACKING, "topic", 0, 14, False)], DOCUMENTS)
    upserts.table.land(rows, upserts.batch(14, 15), commit_id=uuid.uuid4().hex)
    assert stored()[5][0] == PLACEHOLDER
