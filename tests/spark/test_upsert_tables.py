"""Upserts: the history table, keys of all types and values, and which tables a feed accepts or refuses."""

import json
import uuid
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.errors import ConfigError
from lakefeed.ledger.snapshot_summary import COMMIT_ID, Backfill, Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode.unavailable import Unavailable
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.iceberg import upsert
from lakefeed.sinks.iceberg.upsert import UpsertTable
from tests.support.ledger_feed import CHANGES, Change
from tests.support.upserts import CATALOG, Upserts


@pytest.mark.quick
def test_the_history_has_every_change_and_the_table_has_the_newest(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {"with_history": True})
    first: list[Change] = [(1, "a", "x", 0, 0), (1, "a", "y", 0, 1), (1, None, None, 0, 2)]
    upserts.land(0, 3, first)
    upserts.land(3, 5, [(2, "a", "z", 0, 4)])
    expected = [(0, 1, "x", False), (1, 1, "y", False), (2, 1, None, True), (4, 2, "z", False)]
    assert upserts.rows("kafka_offset, id, v, lakefeed_deleted", upserts.history) == expected
    assert upserts.rows() == [(2, "a", "z", 4)]


@pytest.mark.parametrize("merges", [False, True], ids=["index", "merge"])
def test_a_crash_between_the_commits_of_history_and_table_is_repaired(
    upserting: SparkSession, monkeypatch: pytest.MonkeyPatch, merges: bool
) -> None:
    upserts = Upserts(upserting, {"with_history": True} | ({"key_index_mb": 0} if merges else {}))
    upserts.land(0, 2, [(1, "a", "x", 0, 1)])

    def crash(*_: Any, **_settings: Any) -> None:
        raise KeyboardInterrupt

    for ranges in ((2, 4), (2, 5)):
        # As after a lost checkpoint, the second attempt has a longer range than the first.
        upserts.restart()
        monkeypatch.setattr(upserts.table, "_merge", crash)
        monkeypatch.setattr(upsert, "run_in_turn", crash)
        changes: list[Change] = [(2, "a", str(offset), 0, offset) for offset in range(*ranges)]
        with pytest.raises(KeyboardInterrupt):
            upserts.land(*ranges, changes)
        monkeypatch.undo()
    upserts.restart()
    upserts.land(2, 5, [(2, "a", str(offset), 0, offset) for offset in range(2, 5)])
    assert upserts.rows("kafka_offset", upserts.history) == [(1,), (2,), (3,), (4,)]
    assert upserts.rows("id, kafka_offset") == [(1, 1), (2, 4)]


def test_a_late_change_is_in_the_history_once(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {"with_history": True, "on_delete": "mark"})
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


def test_a_rewind_of_a_feed_also_rewinds_the_history(upserting: SparkSession) -> None:
    upserts = Upserts(upserting, {"with_history": True})
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
"""2025-10-26T01:30Z in microseconds: the second 02:30 of that day in Berlin."""

HOSTILE: list[tuple[int, int, str | None, Decimal, bytes, int, bool]] = [
    (REPEATED_HOUR, -800_000, "${foo}", Decimal("1e-18"), b"\0\xff", 2**63 - 1, True),
    (REPEATED_HOUR - 3_600_000_000, 0, "${env:HOME}", Decimal("-99999999999999999999.5"), b"", -(2**63), False),
    (-62_135_596_800_000_000, -719_162, 'it\'s \\ "x"\n;--', Decimal(0), b"'", 0, True),
    (-12_219_292_800_000_001, -141_428, "x" * 100_000, Decimal("0.1"), b"${foo}", -1, True),
    (253_402_300_800_000_000, 2_932_897, "\U0001f600", Decimal("99999999999999999999"), b"\xf0", 1, False),
    # If the text is null, ``changes`` makes it from the bytes; 0xff is not valid UTF-8.
    (1_711_846_800_000_000, 1, None, Decimal(7), b"\xff", 7, True),
    (0, 2, "", Decimal("-0.0"), b"x", 8, False),
]
"""Values of keys: microseconds, days, text, ... Each row has one value of each type."""


@pytest.mark.parametrize(
    "alone", [HOSTILE[:1], pytest.param([*HOSTILE[1:], HOSTILE[0]], marks=pytest.mark.slow)], ids=["one", "all"]
)
def test_a_key_of_any_type_and_value_has_one_row(upserting: SparkSession, alone: list[tuple[Any, ...]]) -> None:
    keys = [column.split()[0] for column in KEYS.split(", ")]
    name, columns = f"{CATALOG}.ns.k{uuid.uuid4().hex[:8]}", ("at", "day", "text", "digits", "bytes", "number", "flag")
    sink = IcebergSinkConfig.model_validate({"table": name, "mode": "upsert", "keys": keys, "sort_by": ["text"]})
    table = UpsertTable(upserting, sink, feed="shop")

    def changes(rows: list[tuple[Any, ...]], start: int) -> Any:
        placed = [(*row, start + at) for at, row in enumerate(rows)]
        types = "at BIGINT, day INT, text STRING, digits DECIMAL(38,18), bytes BINARY, number BIGINT, flag BOOLEAN"
        made = {"at": "timestamp_micros(at)", "day": "date_from_unix_date(day)", "text": "ifnull(text, STRING(bytes))"}
        return upserting.createDataFrame(placed, f"{types}, kafka_offset BIGINT").selectExpr(
            *(f"{made.get(column, column)} AS {column}" for column in columns),
            "CAST(timestamp_micros(at) AS TIMESTAMP_NTZ) AS local",
            "'topic' AS kafka_topic",
            "0 AS kafka_partition",
            "kafka_offset",
            "false AS lakefeed_deleted",
        )

    zone = str(upserting.conf.get("spark.sql.session.timeZone"))
    upserting.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        table.apply_schema(changes([], 0).schema)
        fence, end = table.take_fence(), 0
        for rows in (HOSTILE, *([row] for row in alone), HOSTILE[4:6], HOSTILE):
            ranges = OffsetRanges((OffsetRange("topic", 0, end, end + len(rows)),), {"topic": "one"})
            commit = Commit("shop", end, ranges, fence=fence)
            assert table.land(changes(rows, end), commit, commit_id=uuid.uuid4().hex) == len(rows)
            end += len(rows)
            assert upserting.table(name).count() == len(HOSTILE)
    finally:
        upserting.conf.set("spark.sql.session.timeZone", zone)


def test_a_uuid_key_has_one_row(upserting: SparkSession) -> None:
    """Iceberg and Spark order UUIDs differently, but the bounds of Iceberg's files must still include each key."""
    name = f"{CATALOG}.ns.u{uuid.uuid4().hex[:8]}"
    java: Any = upserting.sparkContext._jvm
    upserting.sql(f"CREATE TABLE {name} (v INT, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT)")
    loaded = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(upserting._jsparkSession, name)
    loaded.updateSchema().addColumn("id", java.org.apache.iceberg.types.Types.UUIDType.get()).commit()
    sink = IcebergSinkConfig.model_validate({"table": name, "mode": "upsert", "keys": ["id"]})
    table = UpsertTable(upserting, sink, feed="shop")
    ids = [str(uuid.UUID(int=part << 120)) for part in (0x00, 0x7F, 0x80, 0xFF)]
    columns = "id STRING, v INT, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT, lakefeed_deleted BOOLEAN"
    table.apply_schema(upserting.createDataFrame([], columns).schema)
    fence = table.take_fence()
    for start in (0, 4):
        rows = [(each, start, "topic", 0, start + at, False) for at, each in enumerate(ids)]
        ranges = OffsetRanges((OffsetRange("topic", 0, start, start + 4),), {"topic": "one"})
        commit = Commit("shop", start, ranges, fence=fence)
        table.land(upserting.createDataFrame(rows, columns), commit, commit_id=uuid.uuid4().hex)
    assert [row.v for row in upserting.table(name).collect()] == [4] * 4


def test_a_table_of_another_mode_or_with_other_keys_is_refused(plain: Upserts, upserting: SparkSession) -> None:
    plain.land(0, 1, [(1, "a", "x", 0, 0)])
    with pytest.raises(ConfigError, match="written with keys and on_delete 'id remove'"):
        plain.restart(on_delete="mark")
    with pytest.raises(ConfigError, match="written with keys"):
        plain.restart(on_delete="remove", keys=["id", "city"])
    plain.restart(keys=["id"], write="copy-on-write")
    assert plain.table.ledger.properties()["write.merge.mode"] == "copy-on-write"
    appended = Upserts.__new__(Upserts)
    appended.spark, appended.settings, appended.fence = upserting, {}, None
    appended.name = f"{CATALOG}.ns.a{uuid.uuid4().hex[:8]}"
    upserting.sql(f"CREATE TABLE {appended.name} ({CHANGES}) USING iceberg TBLPROPERTIES ('format-version'='2')")
    writer = appended.changes([(1, "a", "x", 0, 0)]).writeTo(appended.name)
    for key, value in {**appended.batch(0, 1).properties(), COMMIT_ID: "c"}.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()
    with pytest.raises(ConfigError, match="has appended to this table"):
        appended.restart()


def test_a_key_column_that_an_alias_renames_must_be_renamed_in_the_file(plain: Upserts) -> None:
    plain.land(0, 1, [(1, "a", "x", 0, 0)])
    field = {"name": "number", "type": ["null", "long"], "default": None, "aliases": ["id"]}
    schema = StoredSchema(json.dumps({"type": "record", "name": "R", "fields": [field]}), frozenset({2}))
    renamed = plain.changes([]).withColumnRenamed("id", "number").schema

    def start(**settings: Any) -> None:
        block = {"table": plain.name, "mode": "upsert", "keys": ["number"], **settings}
        plain.table = UpsertTable(plain.spark, IcebergSinkConfig.model_validate(block), feed="shop")
        plain.table.apply_schema(renamed, schema)

    for wrong in ({"keys": ["number", "city"]}, {"keys": ["city"]}, {"on_delete": "mark"}):
        with pytest.raises(ConfigError, match="written with keys and on_delete 'id remove'"):
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
        ("key BIGINT, " + CHANGES.partition(", ")[2], "an upsert needs the column id"),
        ("id DOUBLE, " + CHANGES.partition(", ")[2], "the column id is double, which cannot be a key"),
    ],
)
def test_rows_that_cannot_be_upserted_are_refused(upserting: SparkSession, columns: str, because: str) -> None:
    sink = IcebergSinkConfig(table=f"{CATALOG}.ns.never", mode="upsert", keys=["id"])
    table = UpsertTable(upserting, sink, feed="shop")
    with pytest.raises(ConfigError, match=because):
        table.apply_schema(upserting.createDataFrame([], columns).schema)
    assert not upserting.catalog.tableExists(sink.table)


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
def test_an_unavailable_value_comes_from_an_older_change_of_the_batch_or_the_stored_row(
    upserting: SparkSession, on_delete: str
) -> None:
    upserts = Upserts(upserting, {"on_delete": on_delete, "with_history": True, "order_by": []})

    def land(start: int, *documents: tuple[int, tuple[Any, ...] | None]) -> None:
        values = [
            (key, *(document or (None,) * 6), "topic", 0, start + at, document is None)
            for at, (key, document) in enumerate(documents)
        ]
        rows = upserting.createDataFrame(values, DOCUMENTS)
        upserts.table.apply_schema(rows.schema)
        upserts.table.unavailable = Unavailable(PLACEHOLDER)
        upserts.table.land(rows, upserts.batch(start, start + len(documents)), commit_id=uuid.uuid4().hex)

    def stored() -> dict[int, tuple[Any, ...]]:
        where = "" if on_delete == "remove" else "WHERE NOT lakefeed_deleted"
        found = upserting.sql(f"SELECT * FROM {upserts.name} {where}").collect()
        return {row.id: (row.v, bytes(row.data or b""), row.tags, row.numbers, row.map, row.inner) for row in found}

    def expected(at: int, e: int | None = None) -> tuple[Any, ...]:
        *plain, (a, (d, number)) = _document(at)
        return (*plain, (a, (bytearray(d), number if e is None else e)))

    nothing = (None, b"", None, None, None, (None, (None, 9)))
    land(0, (1, _document(1)), (2, _document(2)))
    # A value that an event lacks comes from an older change of the batch, else from the stored row, else it is null.
    land(2, (1, LACKING), (3, LACKING), (2, _document(4)), (2, LACKING), (2, (None, *LACKING[1:])))
    assert stored() == {1: expected(1, 9), 2: (None, *expected(4, 9)[1:]), 3: nothing}
    # After a delete, a value that an event lacks is null, not the value from before the delete.
    land(7, (1, None), (1, LACKING), (2, None), (4, _document(5)), (4, None), (4, LACKING))
    assert stored() == {1: nothing, 3: nothing, 4: nothing}
    land(13, (2, LACKING))
    assert stored()[2] == nothing
    upserts.table.unavailable = Unavailable(PLACEHOLDER)
    assert upserting.sql(f"SELECT 1 FROM {upserts.history} WHERE v = '{PLACEHOLDER}'").collect() == []
    upserts.table.unavailable = Unavailable(PLACEHOLDER, "keep")
    rows = upserting.createDataFrame([(5, *LACKING, "topic", 0, 14, False)], DOCUMENTS)
    upserts.table.land(rows, upserts.batch(14, 15), commit_id=uuid.uuid4().hex)
    assert stored()[5][0] == PLACEHOLDER
