"""The ledger stores valid rewinds, moves and backfills of a feed, and refuses invalid ones."""

import pytest

from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from tests.support.feed_table import FEED, Table, refused, span


@pytest.mark.quick
def test_a_rewind_moves_the_position_and_deletes_rows_in_one_commit(table: Table) -> None:
    table.land(0, 4)
    table.land(4, 8)
    snapshots = len(table.snapshots())
    table.move(8, 2, delete=True)
    assert len(table.snapshots()) == snapshots + 1
    assert table.ids() == [0, 1]
    assert table.covered() == ((0, 2),)
    refused(lambda: table.land(8, 9), "topic-0 begins at 8, the table ends at 2")
    table.land(2, 6)
    assert table.ids() == [0, 1, 2, 3, 4, 5]
    assert table.covered() == ((0, 6),)


@pytest.mark.parametrize("delete", [True, False])
def test_a_rewind_that_deletes_no_row_is_still_a_commit(table: Table, delete: bool) -> None:
    table.land(0, 4)
    table.spark.sql(f"DELETE FROM {table.name} WHERE id >= 2")
    table.move(4, 2, delete=delete)
    [newest, _] = table.ledger().commits()
    assert newest.move == PositionReset("rewind", {("topic", 0): (4, 2)}, {"topic": "id-one"})
    assert newest.rows == 0
    table.land(2, 4)
    assert table.ids() == [0, 1, 2, 3]


def test_a_move_from_another_position_is_refused(table: Table) -> None:
    refused(lambda: table.move(4, 2), "has no commit in the table, so it cannot be moved")
    table.land(0, 4)
    refused(lambda: table.move(5, 2), "is to be moved from 5, the table ends at 4")
    elsewhere = Commit(FEED, 0, span(3, 3), move=PositionReset("rewind", {("topic", 0): (4, 2)}))
    refused(lambda: table.commit_reset(elsewhere), "is to be moved to 2 and begins at 3")
    forgetful = Commit(FEED, 0, OffsetRanges(()), move=PositionReset("rewind"))
    refused(lambda: table.commit_reset(forgetful), "is in the table but not in the batch")


def test_a_recreated_topic_is_read_only_after_a_move_that_names_the_old_topic_id(table: Table) -> None:
    more = [OffsetRange("topic", 1, 0, 3)]
    table.land(0, 4, ranges=span(0, 4, more=more))
    new = span(0, 0, topic_id="id-two")
    unnamed = Commit(FEED, 0, new, move=PositionReset("accepted-loss", {("topic", 0): (4, 0)}, {"topic": "id-other"}))
    refused(lambda: table.commit_reset(unnamed), "topic topic was recreated (id id-two, was id-one)")
    table.commit_reset(
        Commit(FEED, 0, new, move=PositionReset("accepted-loss", {("topic", 0): (4, 0)}, {"topic": "id-one"}))
    )
    table.land(0, 2, ranges=span(0, 2, topic_id="id-two"))
    position = table.ledger().position()
    assert position is not None
    assert position.covered is not None
    assert position.covered.intervals == {("topic", 0): ((0, 2),)}
    assert position.covered.topic_ids == {"topic": "id-two"}


@pytest.mark.quick
def test_a_backfill_lands_only_uncovered_ranges_below_the_feeds_start(table: Table) -> None:
    refused(lambda: table.backfill(0, 4), "it is not known which records")
    table.land(10, 14)
    refused(lambda: table.backfill(8, 11), "would duplicate records of feed 'trips': topic-0 has [10, 14) already")
    refused(lambda: table.backfill(14, 16), "will read these records itself: topic-0 up to 16, it is at 14")
    other = span(0, 4, topic_id="id-two")
    refused(lambda: table.backfill(0, 4, ranges=other), "will read these records itself")
    table.backfill(4, 10)
    assert table.covered() == ((4, 14),)
    refused(lambda: table.backfill(4, 10), "would duplicate")
    table.land(14, 16)
    table.backfill(0, 2)
    assert table.covered() == ((0, 2), (4, 16))
    assert table.ids() == [0, 1, *range(4, 16)]


def test_backfills_and_the_feed_have_separate_fences(table: Table) -> None:
    feed = IcebergLedger(table.spark, table.name, FEED).take_fence()
    table.land(10, 12, fence=feed)
    old = IcebergLedger(table.spark, table.name, f"{FEED}.backfills").take_fence()
    new = IcebergLedger(table.spark, table.name, f"{FEED}.backfills").take_fence()
    refused(lambda: table.backfill(0, 4, fence=old), "another driver has taken over feed 'trips.backfills'")
    table.backfill(0, 4, fence=new)
    table.land(12, 13, fence=feed)
    assert table.covered() == ((0, 4), (10, 13))


def test_a_move_sets_a_position_that_was_unknown(table: Table) -> None:
    table.plain(100)
    before = table.head()
    table.land(0, 4)
    table.call("rollback_to_snapshot", f", snapshot_id => {before}")
    with pytest.raises(CheckpointMismatch, match="rolled back"):
        table.ledger().position()
    refused(lambda: table.land(0, 4), "was rolled back to before the commits")
    table.commit_reset(Commit(FEED, 0, span(0, 0), move=PositionReset("rewind", unknown=True)))
    table.land(0, 4)
    assert table.ids() == [0, 1, 2, 3, 100]
    # The feed's position is known now, so the same move is refused.
    refused(
        lambda: table.commit_reset(Commit(FEED, 0, span(0, 0), move=PositionReset("rewind", unknown=True))),
        "topic-0 begins at 0, the table ends at 4",
    )
