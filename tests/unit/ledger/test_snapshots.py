"""Compare the row counts of commits with the rows of a real Iceberg table in a folder."""

import json
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from lakefeed.ledger.snapshot_summary import (
    BACKFILL_OF,
    BATCH_ID,
    FEED,
    MOVED,
    RANGES,
    REPLAY,
    REPLAY_OF,
    PositionReset,
)
from lakefeed.ledger.snapshots import ancestors, backfills_of, commits_of, others_in, replays_of, rows_before
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges

SCHEMA = pa.schema([("id", pa.int64())])


def rows(start: int, end: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": each} for each in range(start, end)], schema=SCHEMA)


def summary(start: int, end: int, **others: str) -> dict[str, Any]:
    ranges = OffsetRanges((OffsetRange("t", 0, start, end),), {"t": "one"}).to_json()
    return {FEED: "f", BATCH_ID: "0", RANGES: ranges, **others}


def test_the_growth_of_all_commits_is_the_number_of_rows_in_the_table(catalog: Catalog) -> None:
    table = catalog.create_table("ns.rows", schema=SCHEMA)
    table.append(rows(0, 20), snapshot_properties=summary(0, 20))
    table.append(rows(20, 30), snapshot_properties=summary(20, 30))
    rewind = PositionReset("rewind", {("t", 0): (30, 20)}, {"t": "one"}, {("t", 0): 10})
    moved = rewind.to_json(OffsetRanges((OffsetRange("t", 0, 20, 20),), {"t": "one"}))
    table.delete("id >= 20", snapshot_properties=summary(20, 20, **{MOVED: moved}))
    table.append(rows(20, 40), snapshot_properties=summary(20, 40))
    backfill = {BACKFILL_OF: "f", RANGES: summary(0, 1)[RANGES]}
    table.append(rows(100, 103), snapshot_properties=backfill)
    replay = {REPLAY_OF: "f", REPLAY: "r", "lakefeed.counts": json.dumps({"t": {"0": [2, 0, 0]}})}
    table.append(rows(200, 202), snapshot_properties=replay)
    # In output mode complete, every batch replaces all rows.
    table.overwrite(rows(0, 4), snapshot_properties=summary(40, 41))

    line, whole = ancestors(table)
    assert whole
    held = {each.snapshot_id: table.scan(snapshot_id=each.snapshot_id).to_arrow().num_rows for each in line}
    for number in range(len(line)):
        # Assume that all snapshots before ``left`` have expired.
        left = line[number:]
        grown = sum(each.grown for each in commits_of(left, "f"))
        grown += sum(each.grown for each in backfills_of(left, "f"))
        grown += sum(each.grown for each in replays_of(left, "f"))
        before = rows_before(left)
        assert before == (held[line[number - 1].snapshot_id] if number else 0)
        # An overwrite by PyIceberg makes two snapshots, both with the properties of the commit.
        assert before + grown == held[line[-1].snapshot_id] == 4


def test_the_empty_snapshot_of_a_new_branch_is_no_commit_of_another_program() -> None:
    """Spark makes an empty snapshot when it creates a branch in an empty table."""
    empty = {"changed-partition-count": "0", "total-records": "0"}
    appended = {"changed-partition-count": "1", "added-records": "3", "total-records": "3"}
    summaries = Summary(Operation.APPEND, **empty), Summary(Operation.APPEND, **appended), Summary(Operation.DELETE)
    line = [
        Snapshot(snapshot_id=number, sequence_number=number, timestamp_ms=number, manifest_list="", summary=each)
        for number, each in enumerate(summaries, start=1)
    ]
    assert [(each.snapshot_id, each.added) for each in others_in(line)] == [(2, 3), (3, 0)]
