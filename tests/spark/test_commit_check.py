"""Which commits land and which are refused, by the catalog's compare-and-set on a feed's position; on all catalogs."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import CONTINUITY, ROWS, Commit, Replay
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.sinks.definition import TableChange
from lakefeed.sinks.iceberg.layout import carry_out, creation
from lakefeed.sinks.iceberg.table import IcebergTable
from lakefeed_repair.replay import REPLAYS
from tests.support.catalogs import CatalogCase
from tests.support.feed_table import FEED, Table, refused, span

ROUNDS = 15


def together(*actions: Callable[[], None]) -> list[BaseException | None]:
    """Run the actions at the same time; return each action's error, or None."""
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], None]) -> BaseException | None:
        start.wait()
        try:
            action()
        except Exception as error:
            return error
        return None

    with ThreadPoolExecutor(len(actions)) as threads:
        return list(threads.map(run, actions, timeout=120))


@pytest.mark.quick
def test_a_batch_lands_only_if_it_begins_where_the_last_batch_ended(table: Table) -> None:
    table.land(0, 3)
    table.land(3, 5)
    refused(lambda: table.land(6, 8), "topic-0 begins at 6, the table ends at 5")
    refused(lambda: table.land(4, 8), "topic-0 begins at 4, the table ends at 5")
    refused(lambda: table.land(5, 6, ranges=span(5, 6, topic_id="id-two")), "was recreated")
    refused(lambda: table.land(0, 3), "topic-0 begins at 0")
    grown = span(5, 6, more=[OffsetRange("topic", 1, 0, 0)])
    table.land(5, 6, ranges=grown)
    refused(lambda: table.land(6, 7), "topic-1 is in the table but not in the batch")
    assert table.ids() == [0, 1, 2, 3, 4, 5]
    assert len(table.snapshots()) == 3
    # A second feed may land the same offsets, because the table has a separate position for each feed.
    table.land(0, 1, feed="others")
    assert table.ids() == [0, 0, 1, 2, 3, 4, 5]


def test_the_same_sequence_number_in_another_shard_is_refused(table: Table) -> None:
    def marked(start: int, end: int, *marks: str) -> OffsetRanges:
        return OffsetRanges((OffsetRange("topic", 0, start, end, (marks[0], marks[1])),), {"topic": "id-one"})

    table.land(0, 3, ranges=marked(0, 3, "oldest", "4959"))
    refused(lambda: table.land(3, 5, ranges=marked(3, 5, "4960", "4970")), "begins after 4960, the table ends at 4959")
    table.land(3, 5, ranges=marked(3, 5, "4959", "4970"))
    assert table.ids() == [0, 1, 2, 3, 4]


def test_empty_batches_keep_the_position_and_batches_may_skip_offsets(table: Table) -> None:
    table.land(0, 2)
    table.land(2, 2)
    sparse = {CONTINUITY: "sparse", ROWS: "2"}
    table.land(5, 7, properties=sparse)
    refused(lambda: table.land(6, 8, properties=sparse), "begins at 6")
    refused(lambda: table.land(8, 9, properties=sparse), "the commit has 1 rows, and should have 2")
    assert table.ids() == [0, 1, 5, 6]


@pytest.mark.quick
def test_a_repeated_commit_lands_once(table: Table) -> None:
    table.land(0, 2, commit_id="one")
    table.land(0, 2, commit_id="one")
    assert table.ids() == [0, 1]
    assert len(table.snapshots()) == 1
    # The commit id alone does not identify a batch: with a new checkpoint, batch numbers start from 0 again.
    table.land(2, 4, commit_id="one")
    assert table.ids() == [0, 1, 2, 3]


@pytest.mark.quick
def test_a_commit_whose_answer_is_lost_lands_once(table: Table, catalog: CatalogCase) -> None:
    table.land(0, 2)
    with catalog.answers_lost():
        table.land(2, 4)
    assert table.ids() == [0, 1, 2, 3]
    table.land(4, 5)
    assert table.ids() == [0, 1, 2, 3, 4]


def test_of_two_sessions_that_commit_the_same_range_exactly_one_succeeds(
    table: Table, checked: SparkSession, catalog: CatalogCase
) -> None:
    other = checked.newSession()
    catalog.declare(other)
    for number in range(ROUNDS):
        start, end = 2 * number, 2 * number + 2
        outcomes = together(
            lambda start=start, end=end: table.land(start, end),  # type: ignore[misc]
            lambda start=start, end=end: table.land(start, end, spark=other),  # type: ignore[misc]
        )
        losers = [str(each) for each in outcomes if each is not None]
        assert len(losers) == 1, f"round {number}: {losers}"
        assert "lakefeed refuses the commit" in losers[0]
    assert table.ids() == list(range(2 * ROUNDS))
    assert len(table.snapshots()) == ROUNDS


def test_of_two_sessions_that_create_the_table_and_land_its_first_batch_exactly_one_succeeds(
    table: Table, checked: SparkSession, catalog: CatalogCase
) -> None:
    other = checked.newSession()
    catalog.declare(other)
    for number in range(5):
        name = f"{table.name}_{number}"
        change = TableChange(table=name, statements=creation(name, columns="id BIGINT"), is_new=True)

        def begin(spark: SparkSession, change: TableChange = change) -> None:
            carry_out(spark, change)
            Table(spark, change.table).land(0, 2)

        outcomes = together(lambda: begin(checked), lambda: begin(other))
        [loser] = [str(each) for each in outcomes if each is not None]
        assert "lakefeed refuses the commit" in loser
        assert Table(checked, name).ids() == [0, 1]


def test_a_batch_is_skipped_only_if_the_newest_commit_has_the_same_ranges(table: Table) -> None:
    def is_there(batch_id: int, start: int, end: int) -> bool:
        return table.ledger().check(Commit(FEED, batch_id, span(start, end))) is CommitCheck.ALREADY_COMMITTED

    assert not is_there(0, 0, 3)
    with pytest.raises(CheckpointMismatch, match="the table has no commit of this feed"):
        is_there(1, 3, 5)
    table.land(0, 3)
    assert is_there(0, 0, 3)
    # This batch has another number but the same ranges: it has landed, and a lost checkpoint restarted the numbers at
    # 0.
    assert is_there(7, 0, 3)
    assert not is_there(0, 3, 5)
    for start, end in ((0, 4), (2, 4), (4, 5)):
        with pytest.raises(CheckpointMismatch, match="does not continue where"):
            is_there(0, start, end)


def test_only_the_replay_that_took_the_fence_last_can_commit(table: Table) -> None:
    replays = f"{FEED}{REPLAYS}"
    feed = IcebergLedger(table.spark, table.name, FEED).take_fence()
    old, new = (IcebergLedger(table.spark, table.name, replays).take_fence() for _ in range(2))

    def replay(number: int, fence: str) -> None:
        properties = Replay(FEED, f"replay-{number}", fence).properties()
        writer = table.spark.range(number, number + 1).writeTo(table.name)
        for key, value in properties.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        writer.append()

    refused(lambda: replay(100, old), "another driver has taken over")
    replay(101, new)
    # The feed continues while replays run.
    table.land(0, 2, fence=feed)
    assert table.ids() == [0, 1, 101]


@pytest.mark.quick
def test_only_the_driver_that_took_the_fence_last_can_commit(table: Table) -> None:
    old = IcebergLedger(table.spark, table.name, FEED).take_fence()
    table.land(0, 2, fence=old)
    table.land(2, 4, fence=old)
    new = IcebergLedger(table.spark, table.name, FEED).take_fence()
    refused(lambda: table.land(4, 6, fence=old), "another driver has taken over")
    refused(lambda: table.land(4, 6), "another driver has taken over")
    table.land(4, 6, fence=new)
    refused(lambda: table.set_property(f"lakefeed.fence.{FEED}", old), "is taken")
    assert table.ids() == [0, 1, 2, 3, 4, 5]
    # A replaced driver is refused before it writes; the error names the new driver, and not the checkpoint.
    sink = IcebergTable(table.spark, IcebergSinkConfig(table=table.name), feed=FEED, evolves=False)
    with pytest.raises(CheckpointMismatch, match="another driver has taken over"):
        sink.has(Commit(FEED, 2, span(4, 5), fence=old))
    with pytest.raises(CheckpointMismatch, match="does not continue where"):
        sink.has(Commit(FEED, 2, span(4, 5), fence=new))


def test_two_drivers_that_take_the_fence_together_get_different_fences(table: Table) -> None:
    fences: list[str] = []

    def take_five() -> None:
        fences.extend(IcebergLedger(table.spark, table.name, FEED).take_fence() for _ in range(5))

    outcomes = together(take_five, take_five)
    assert [str(each) for each in outcomes if each is not None] == []
    assert sorted(int(each.split()[0]) for each in fences) == list(range(1, 11))


def test_the_position_survives_the_expiry_of_the_feeds_snapshots(table: Table) -> None:
    table.land(0, 2)
    table.plain(100)
    table.expire()
    assert next(table.ledger().commits(), None) is None
    refused(lambda: table.land(0, 2), "topic-0 begins at 0, the table ends at 2")
    refused(lambda: table.land(3, 4), "topic-0 begins at 3")
    table.land(2, 4)
    assert table.ids() == [0, 1, 2, 3, 100]


@pytest.mark.parametrize("replaced", [False, True], ids=["expired", "replaced"])
def test_an_expired_parent_snapshot_does_not_count_as_a_rollback(
    table: Table, elsewhere: Table, catalog: CatalogCase, connections: Connections, replaced: bool
) -> None:
    table.land(0, 2)
    if replaced:
        elsewhere.spark.sql(f"CREATE OR REPLACE TABLE {table.name} USING iceberg AS SELECT CAST(100 AS BIGINT) AS id")
    else:
        elsewhere.plain(100)
    expired = [each for each in table.snapshots() if each != table.head()]
    opened = open_table(table.name, connections=connections)
    opened.maintenance.expire_snapshots().by_ids(expired).commit()
    [left] = open_table(table.name, connections=connections).metadata.snapshots
    # pyiceberg removes the id of an expired parent. With a REST catalog, the server writes the metadata and keeps the
    # id.
    if replaced or catalog.declared().type != "rest":
        assert left.parent_snapshot_id is None
    table.spark.sql(f"REFRESH TABLE {table.name}")
    if replaced:
        refused(lambda: table.land(2, 4), "was rolled back to before the commits")
        return
    refused(lambda: table.land(0, 2), "topic-0 begins at 0, the table ends at 2")
    table.land(2, 4)
    assert table.ids() == [0, 1, 2, 3, 100]
    assert table.covered() == ((0, 4),)


def test_the_position_follows_a_rollback_even_if_the_snapshots_expire_later(table: Table) -> None:
    table.land(0, 2)
    first = table.head()
    table.land(2, 4)
    table.call("rollback_to_snapshot", f", snapshot_id => {first}")
    table.plain(100)
    table.expire()
    refused(lambda: table.land(4, 6), "begins at 4, the table ends at 2")
    table.land(2, 4)
    assert table.ids() == [0, 1, 2, 3, 100]


def cut_history(table: Table) -> int:
    """Expire the feed's snapshots, so that only a table property has the position; return an older snapshot.

    The returned snapshot is from before the feed's first commit, and survives because it is tagged.
    """
    table.plain(100)
    before = table.head()
    table.spark.sql(f"ALTER TABLE {table.name} CREATE TAG before")
    table.land(0, 2)
    table.land(2, 4)
    table.plain(101)
    table.expire()
    assert next(table.ledger().commits(), None) is None
    assert table.position() is not None
    return before


@pytest.mark.parametrize("case", ["appended to", "cut again", "by an engine without the check"])
def test_after_a_rollback_to_before_the_feed_its_batches_are_refused_even_if_its_snapshots_have_expired(
    table: Table, elsewhere: Table, case: str
) -> None:
    before = cut_history(table)
    who = elsewhere if case == "by an engine without the check" else table
    who.call("set_current_snapshot", f", snapshot_id => {before}")
    who.plain(102)
    if case == "cut again":
        table.spark.sql(f"ALTER TABLE {table.name} DROP TAG before")
        table.expire()
    refused(lambda: table.land(4, 6), "was rolled back to before the commits")
    refused(lambda: table.land(0, 2), "was rolled back to before the commits")
    assert table.ids() == [100, 102]


def test_maintenance_and_deletes_by_other_writers_keep_the_position(table: Table) -> None:
    table.land(0, 2)
    first = table.head()
    for number in range(1, 4):
        table.land(2 * number, 2 * number + 2)
    table.call("rewrite_data_files", ", options => map('min-input-files', '2')")
    table.land(8, 10)
    table.call("rewrite_manifests")
    table.spark.sql(f"MERGE INTO {table.name} t USING (SELECT 0L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    table.spark.sql(f"DELETE FROM {table.name} WHERE id = 1")
    table.land(10, 12)
    assert table.ids() == list(range(2, 12))
    past = table.spark.sql(f"SELECT id FROM {table.name} VERSION AS OF {first} ORDER BY id").collect()
    assert [row.id for row in past] == [0, 1]
    table.call("remove_orphan_files", ", older_than => TIMESTAMP '2020-01-01 00:00:00'")
    table.expire()
    table.land(12, 14)
    assert table.ids() == list(range(2, 14))
    assert [each.ranges for each in table.ledger().commits()] == [span(12, 14), span(10, 12)]


def test_a_replay_still_counts_as_landed_after_its_snapshot_has_expired(table: Table) -> None:
    table.land(0, 2)
    fence = IcebergLedger(table.spark, table.name, f"{FEED}{REPLAYS}").take_fence()
    for each in ("one", "two"):
        table.ledger().land_empty(Replay(FEED, each, fence).properties())
    assert [table.ledger().has_replay(each) for each in ("one", "two", "three")] == [True, True, False]
    table.land(2, 4)
    table.expire()
    assert [table.ledger().has_replay(each) for each in ("one", "two")] == [False, True]
    assert not table.ledger("another").has_replay("two")


def test_a_replay_that_was_rolled_back_does_not_count_as_landed(table: Table, elsewhere: Table) -> None:
    table.land(0, 2)
    fence = IcebergLedger(table.spark, table.name, f"{FEED}{REPLAYS}").take_fence()
    before = table.head()
    for back in (table, elsewhere):
        table.ledger().land_empty(Replay(FEED, "one", fence).properties())
        assert table.ledger().has_replay("one")
        back.call("rollback_to_snapshot", f", snapshot_id => {before}")
        assert not table.ledger().has_replay("one")
