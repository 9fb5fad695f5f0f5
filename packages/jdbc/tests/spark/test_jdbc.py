"""The sink lands batches in real databases, with the ledger, upserts and changes of the tables."""

import datetime
import json
import uuid
from dataclasses import replace
from decimal import Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefeed.errors import AccessDenied, CheckpointMismatch, ConfigError, SchemaIncompatible, Unreachable
from lakefeed.ledger.snapshot_summary import Commit, PositionReset, Upserts
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode.unavailable import Unavailable
from lakefeed_jdbc.session import JvmDatabase
from lakefeed_local.part import choose_free
from packages.jdbc.tests.databases import EACH_DATABASE, JdbcFeed, server_of
from tests.support.servers.mysql import MySQL
from tests.support.servers.postgresql import PostgreSQL


@pytest.fixture(params=EACH_DATABASE)
def shop(request: pytest.FixtureRequest, spark: SparkSession) -> JdbcFeed:
    return JdbcFeed(spark, server_of(request.param, request.getfixturevalue))


@pytest.fixture
def upserts(shop: JdbcFeed) -> JdbcFeed:
    shop.settings = {"mode": "upsert", "keys": ["id"]}
    return shop


@pytest.mark.quick
def test_each_batch_is_committed_once_with_its_ranges(shop: JdbcFeed) -> None:
    table = shop.started()
    assert table.position() is None
    first = shop.commit(10)
    assert not table.has(first)
    assert shop.land(table, shop.rows(10)) == 10
    assert shop.land(table, shop.rows(5, start=10), 5) == 5
    assert shop.land(table, shop.rows(0), 3) == 0
    assert [row[0] for row in shop.select("id")] == list(range(15))
    stands = table.position()
    assert stands is not None
    assert [(each.start, each.end) for each in stands.ranges.ranges] == [(15, 18)]
    assert [(each.batch_id, each.rows, each.snapshot_id) for each in table.commits()] == [
        (2, 0, 3),
        (1, 5, 2),
        (0, 10, 1),
    ]
    assert table.has(shop.commit(3, batch=2, start=15))
    # No staging table is left.
    assert shop.tables() == {"rows_of_shop", "lakefeed_feeds", "lakefeed_commits"}


def test_a_batch_that_does_not_begin_at_the_ledgers_end_is_refused(shop: JdbcFeed) -> None:
    table = shop.started()
    shop.land(table, shop.rows(10))
    for start, topic_id, message in (
        (11, "id-one", "begins at 11, the table ends at 10"),
        (9, "id-one", "begins at 9, the table ends at 10"),
        (10, "id-two", "was recreated"),
    ):
        with pytest.raises(CheckpointMismatch, match=message):
            shop.land(table, shop.rows(5), 5, start=start, topic_id=topic_id)
    assert len(shop.select("id")) == 10
    assert shop.tables() == {"rows_of_shop", "lakefeed_feeds", "lakefeed_commits"}


def test_a_repeated_commit_lands_once(shop: JdbcFeed) -> None:
    table = shop.started()
    commit, commit_id = shop.commit(10), uuid.uuid4().hex
    assert table.land(shop.rows(10), commit, commit_id=commit_id) == 10
    assert table.land(shop.rows(10), commit, commit_id=commit_id) == 10
    assert len(shop.select("id")) == 10


@pytest.mark.quick
def test_only_the_driver_that_took_the_fence_last_can_commit(shop: JdbcFeed) -> None:
    zombie = shop.started()
    its_fence = shop.fence
    shop.land(zombie, shop.rows(10))
    successor = shop.started()
    assert shop.fence != its_fence
    with pytest.raises(CheckpointMismatch, match="another driver has taken over"):
        shop.land(zombie, shop.rows(5), 5, fence=its_fence)
    shop.land(successor, shop.rows(5, start=10), 5)
    assert len(shop.select("id")) == 15


def test_a_start_drops_the_staging_tables_of_a_killed_driver(shop: JdbcFeed) -> None:
    table = shop.started()
    left = f"lakefeed_stage_{table._mark}_left"
    shop.server.execute(f"CREATE TABLE {left} (a INT)", "CREATE TABLE lakefeed_stage_another_feeds (a INT)")
    shop.started()
    assert left not in shop.tables()
    assert "lakefeed_stage_another_feeds" in shop.tables()


def test_a_batch_with_refused_rows_leaves_no_rows_and_no_commit(shop: JdbcFeed) -> None:
    shop.server.execute(f"CREATE TABLE {shop.quoted('rows_of_shop')} (id BIGINT, v VARCHAR(3))")
    table = shop.started()
    with pytest.raises(ConfigError, match="the database refuses the rows"):
        shop.land(table, shop.rows(2000))
    assert shop.select("id") == []
    assert table.position() is None


def test_no_error_contains_a_value_that_the_database_refused(shop: JdbcFeed) -> None:
    shop.server.execute(f"CREATE TABLE {shop.quoted('rows_of_shop')} (id BIGINT, v VARCHAR(30), CHECK (id < 0))")
    table = shop.started()
    rows = shop.rows(3).selectExpr("id", "'canary-4711' AS v")
    with pytest.raises(ConfigError, match="the database refuses the rows") as refused:
        shop.land(table, rows)
    error: BaseException | None = refused.value
    while error is not None:
        assert "canary" not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.quick
def test_values_of_every_type_are_stored_exactly(shop: JdbcFeed, spark: SparkSession) -> None:
    rows = spark.sql(
        """
        SELECT 1 AS n, true AS yes, CAST(-7 AS TINYINT) AS tiny, CAST(-300 AS SMALLINT) AS small, 2147483647 AS whole,
          9223372036854775807 AS big, CAST(1.5 AS FLOAT) AS f, 2.25D AS d,
          CAST('123456789012345678.90' AS DECIMAL(20,2)) AS m,
          'Ünïcode 🚕 \\\\ "x"' AS s, X'00FF10' AS b, DATE '1501-01-02' AS day,
          TIMESTAMP '2026-11-22 01:02:03.123456' AS at, TIMESTAMP '1501-01-02 03:04:05' AS old,
          TIMESTAMP_NTZ '1969-12-31 23:59:59.999999' AS wall,
          named_struct('a', 1, 'b', CAST(NULL AS STRING)) AS st, array(1, 2) AS arr, map('k', 1.5D) AS mp
        UNION ALL SELECT 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
          NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
        """
    )
    table = shop.started(rows)
    shop.land(table, rows, 2)
    [first, second] = shop.select("*")
    assert list(second[1:]) == [None] * 17
    n, yes, tiny, small, whole, big, f, d, m, s, b, day, at, old, wall, st, arr, mp = first
    assert (n, yes, tiny, small, whole, big, f, d) == (1, True, -7, -300, 2147483647, 9223372036854775807, 1.5, 2.25)
    assert m == Decimal("123456789012345678.90")
    assert (s, bytes(b), day) == ('Ünïcode 🚕 \\ "x"', b"\x00\xff\x10", datetime.date(1501, 1, 2))
    assert at.replace(tzinfo=None) == datetime.datetime(2026, 11, 22, 1, 2, 3, 123456)
    assert old.replace(tzinfo=None) == datetime.datetime(1501, 1, 2, 3, 4, 5)
    assert wall == datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
    nested = [each if not isinstance(each, str) else json.loads(each) for each in (st, arr, mp)]
    assert nested == [{"a": 1, "b": None}, [1, 2], {"k": 1.5}]


@pytest.mark.quick
def test_the_newest_change_of_each_key_lands(upserts: JdbcFeed) -> None:
    table = upserts.started()
    assert upserts.land(table, upserts.changes([(1, "a", "x", 0, 0), (2, "b", "y", 0, 1), (1, "c", "z", 0, 2)])) == 2
    assert upserts.select("id, city, v, kafka_offset") == [(1, "c", "z", 2), (2, "b", "y", 1)]
    # Key 1 is deleted, key 3 is inserted and deleted, key 2 is updated, and key 9, which has no row, is deleted.
    changes = [(1, None, None, 0, 10), (3, "d", "n", 0, 11), (3, None, None, 0, 12), (2, "e", "w", 0, 13)]
    assert upserts.land(table, upserts.changes([*changes, (9, None, None, 0, 14)])) == 2
    assert upserts.select("id, city, v, kafka_offset") == [(2, "e", "w", 13)]
    newest = next(table.commits()).upserts
    assert newest == Upserts(changes=5, keys=4, deletes=3, inserted=0, updated=1, deleted=1)
    assert newest.void == 2


@pytest.mark.parametrize("on_delete", ["remove", "mark"])
def test_a_column_that_an_event_lacks_keeps_its_stored_value(upserts: JdbcFeed, on_delete: str) -> None:
    lacks = "__debezium_unavailable_value"
    table = upserts.started(on_delete=on_delete)
    table._context = replace(table._context, unavailable=Unavailable(lacks))
    upserts.land(table, upserts.changes([(1, "a", "x", 0, 0), (2, "b", "y", 0, 1)]))
    changes = [(1, lacks, "z", 0, 10), (1, lacks, lacks, 0, 11), (2, "c", "y", 0, 12), (2, lacks, "w", 0, 13)]
    upserts.land(table, upserts.changes([*changes, (3, lacks, "n", 0, 14)]))
    assert upserts.select("id, city, v") == [(1, "a", "z"), (2, "c", "w"), (3, None, "n")]
    upserts.land(table, upserts.changes([(1, "gone", None, 0, 20), (2, None, None, 0, 21), (2, lacks, "v", 0, 22)]))
    upserts.land(table, upserts.changes([(1, lacks, "back", 0, 30)]))
    assert upserts.select("id, city, v") == [(1, None, "back"), (2, None, "v"), (3, None, "n")]


def test_with_order_by_older_changes_are_ignored(upserts: JdbcFeed) -> None:
    table = upserts.started(on_delete="mark", order_by=["city"])
    upserts.land(table, upserts.changes([(1, "2026", "new", 0, 0), (2, "2026", None, 0, 1)]))
    upserts.land(table, upserts.changes([(1, "2025", "old", 1, 5), (2, "2025", "old", 1, 6), (3, None, "n", 1, 7)]))
    assert [(*row[:2], bool(row[2])) for row in upserts.select("id, v, lakefeed_deleted")] == [
        (1, "new", False),
        (2, None, True),
        (3, "n", False),
    ]
    upserts.land(table, upserts.changes([(2, "2027", "back", 1, 8), (3, "0", "m", 1, 9)]))
    assert [row[1] for row in upserts.select("id, v")] == ["new", "back", "m"]


def test_changes_are_refused_if_their_offsets_give_no_order(upserts: JdbcFeed) -> None:
    table = upserts.started()
    upserts.land(table, upserts.changes([(1, "a", "x", 0, 0)]))
    with pytest.raises(ConfigError, match="more than one partition"):
        upserts.land(table, upserts.changes([(1, "a", "y", 1, 0)]))
    with pytest.raises(ConfigError, match="a change has no key"):
        upserts.land(table, upserts.changes([(None, "a", "y", 0, 3)]))
    moved = Commit(
        upserts.name,
        0,
        OffsetRanges((OffsetRange("topic", 0, 0, 0),), {"topic": "id-two"}),
        fence=upserts.fence,
        move=PositionReset("accepted-loss", {("topic", 0): (10, 0)}, left_ids={"topic": "id-one"}),
    )
    table.commit_reset(moved, commit_id=uuid.uuid4().hex)
    with pytest.raises(CheckpointMismatch, match="was recreated"):
        upserts.land(table, upserts.changes([(1, "a", "y", 0, 0)]), start=0, topic_id="id-two")
    assert upserts.select("id, v") == [(1, "x")]


def test_keys_that_differ_in_case_accent_or_blanks_are_different_rows(upserts: JdbcFeed, spark: SparkSession) -> None:
    upserts.settings = {"mode": "upsert", "keys": ["city", "v"]}
    table = upserts.started()
    cities = ["a", "A", "ä", "a ", "", "é", "e"]
    upserts.land(table, upserts.changes([(n, city, "k", 0, n) for n, city in enumerate(cities)]))
    assert len(upserts.select("city")) == len(cities)


def test_the_table_gets_new_and_wider_columns(shop: JdbcFeed, spark: SparkSession) -> None:
    table = shop.started(spark.sql("SELECT 1 AS id, CAST(1.5 AS FLOAT) AS f"))
    wider = spark.sql("SELECT 2147483648 AS id, 1.1D AS f, 'new' AS more, NULL AS nothing")
    table.apply_schema(wider.schema)
    shop.land(table, wider, 1)
    assert shop.select("id, f, more") == [(2147483648, 1.1, "new")]
    with pytest.raises(SchemaIncompatible, match=r"column id is string.*; column f is date"):
        table.apply_schema(spark.sql("SELECT 'x' AS id, DATE '2026-01-01' AS f, 'y' AS more").schema)


def test_unsuitable_tables_are_refused(upserts: JdbcFeed) -> None:
    name = upserts.quoted("rows_of_shop")
    columns = "city TEXT, v TEXT, kafka_topic TEXT, kafka_partition INT, kafka_offset BIGINT"
    upserts.server.execute(f"CREATE TABLE {name} (id BIGINT, {columns})")
    with pytest.raises(ConfigError, match="no unique index of the table has exactly the keys: id"):
        upserts.started()
    upserts.server.execute(f"ALTER TABLE {name} ADD UNIQUE (id)", f"ALTER TABLE {name} ADD COLUMN must INT NOT NULL")
    with pytest.raises(ConfigError, match="requires values that the rows do not have: must"):
        upserts.started()
    upserts.server.execute(f"ALTER TABLE {name} DROP COLUMN must")
    upserts.land(upserts.started(), upserts.changes([(1, "a", "x", 0, 0)]))
    with pytest.raises(ConfigError, match="with the keys 'id remove'"):
        upserts.started(on_delete="mark")
    if not isinstance(upserts.server, PostgreSQL):
        upserts.server.execute(
            "CREATE TABLE other (id VARCHAR(20) COLLATE utf8mb4_general_ci, UNIQUE (id)) ENGINE=MyISAM"
        )
        upserts.settings = {"mode": "upsert", "keys": ["id"], "table": "other"}
        with pytest.raises(ConfigError, match="engine MyISAM has no transactions"):
            upserts.started()
        upserts.server.execute("ALTER TABLE other ENGINE=InnoDB")
        with pytest.raises(ConfigError, match="ignores the case of the key"):
            upserts.started()


def test_a_dropped_table_stops_the_feed_and_the_next_start_begins_from_scratch(shop: JdbcFeed) -> None:
    table = shop.started()
    shop.land(table, shop.rows(10))
    shop.server.execute(f"DROP TABLE {shop.quoted('rows_of_shop')}")
    assert shop.driver().position() is None
    with pytest.raises(CheckpointMismatch, match="dropped while the feed runs"):
        table.apply_schema(shop.rows(0).schema)
    again = shop.started()
    shop.batch, shop.at = 0, 0
    shop.land(again, shop.rows(10))
    assert len(shop.select("id")) == 10


def test_a_wrong_password_and_an_unreachable_server_are_reported(shop: JdbcFeed) -> None:
    with pytest.raises(AccessDenied, match="refuses the user or the password"):
        shop.driver(password="wrong").position()
    port = choose_free(avoid=())
    away = shop.server.jdbc_url.replace(f":{shop.server.port}/", f":{port}/")
    with pytest.raises(Unreachable) as raised:
        shop.driver(url=away).position()
    assert shop.server.password not in str(raised.value)


def test_staged_rows_of_failed_attempts_do_not_land(shop: JdbcFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    table = shop.started()
    stage = JvmDatabase.stage

    def with_a_failed_attempt(self: JvmDatabase, rows: DataFrame, insert: str) -> list[tuple[int, int]]:
        first = stage(self, rows, insert)
        second = stage(self, rows, insert)
        assert not {attempt for attempt, _ in first} & {attempt for attempt, _ in second}
        return second

    monkeypatch.setattr(JvmDatabase, "stage", with_a_failed_attempt)
    assert shop.land(table, shop.rows(10)) == 10
    assert len(shop.select("id")) == 10


def test_rows_are_staged_again_if_the_database_has_lost_them(shop: JdbcFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    table = shop.started()
    stage, calls = JvmDatabase.stage, []

    def then_lost(self: JvmDatabase, rows: DataFrame, insert: str) -> list[tuple[int, int]]:
        written = stage(self, rows, insert)
        calls.append(insert)
        if len(calls) == 1:
            [left] = [name for name in shop.tables() if name.startswith("lakefeed_stage_")]
            shop.server.execute(f"DELETE FROM {left}")
        return written

    monkeypatch.setattr(JvmDatabase, "stage", then_lost)
    assert shop.land(table, shop.rows(10)) == 10
    assert len(calls) == 2
    assert len(shop.select("id")) == 10


def test_an_update_replaces_the_rows_of_its_groups_and_overwrite_replaces_all_rows(
    shop: JdbcFeed, spark: SparkSession
) -> None:
    def hits(*rows: tuple[str, int]) -> DataFrame:
        return spark.createDataFrame(rows, "zip STRING, hits BIGINT")

    table = shop.started(hits(), groups=True, mode="upsert", keys=["zip"])
    assert shop.land(table, hits(("8001", 2), ("3011", 1)), 3) == 2
    assert shop.land(table, hits(("8001", 5), ("6003", 1)), 4) == 2
    assert shop.select("zip, hits") == [("3011", 1), ("6003", 1), ("8001", 5)]
    with pytest.raises(ConfigError, match="more than one row of the key 8001"):
        shop.land(table, hits(("8001", 6), ("8001", 7)), 1)
    whole = JdbcFeed(spark, shop.server, {"table": "all_hits", "mode": "overwrite"}, name="complete")
    table = whole.started(hits())
    whole.land(table, hits(("8001", 2), ("3011", 1)), 3)
    assert whole.land(table, hits(("8001", 9)), 4) == 1
    assert whole.select("zip, hits", "all_hits") == [("8001", 9)]


@pytest.mark.slow
def test_the_error_of_a_mysql_login_that_needs_the_servers_key_names_the_option(
    spark: SparkSession, mysql: MySQL
) -> None:
    server = mysql.new_database()
    # Use a new user: the server remembers users who have logged in, and accepts their next login without its key.
    server.execute("CREATE USER 'fresh'@'%' IDENTIFIED BY 'secret-4711'")
    feed = JdbcFeed(spark, server, {"user": "fresh", "password": "secret-4711"})
    url = server.jdbc_url.partition("?")[0]
    with pytest.raises(AccessDenied, match="needs the password encrypted") as refused:
        feed.driver(url=url).take_fence()
    assert "allowPublicKeyRetrieval=true" in str(refused.value.hint)
    assert "4711" not in str(refused.value)
