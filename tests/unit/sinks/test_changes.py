"""The text of the MERGE statement, which column names cannot change."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.ledger.snapshot_summary import Commit, Upserts
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.sinks.changes import partitions_for, upsert_sql


@settings(deadline=None)
@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=5, unique=True))
def test_upsert_sql_quotes_any_column_name(columns: list[str]) -> None:
    statement = upsert_sql("lake.a.b", "changes", columns=columns, keys=columns[:1])
    for column in columns:
        assert f"t.`{column.replace('`', '``')}` = s.`" in statement


counts = st.integers(0, 10**12)


@settings(deadline=None)
@given(counts, counts, counts)
def test_upsert_counts_are_stored_in_and_read_from_a_summary(changes: int, keys: int, deletes: int) -> None:
    upserts = Upserts(changes, keys, deletes)
    assert Upserts.of({"lakefeed.upserted": upserts.to_json()}) == upserts
    assert Upserts.of({}) is None
    assert Upserts.sum([upserts, None, upserts]) == Upserts(2 * changes, 2 * keys, 2 * deletes)


def test_a_shuffle_has_as_many_partitions_as_the_records_of_its_batch_need() -> None:
    def partitions(records: int, row_bytes: int) -> int:
        conf, context = {"spark.sql.shuffle.partitions": "200"}, SimpleNamespace(defaultParallelism=4)
        schema = SimpleNamespace(defaultSize=lambda: row_bytes)
        session, frame = SimpleNamespace(conf=conf, sparkContext=context), SimpleNamespace(schema=lambda: schema)
        changes: Any = SimpleNamespace(sparkSession=session, _jdf=frame)
        ranges = OffsetRanges((OffsetRange("t", 0, 5, 5 + records),), {"t": "A"})
        return partitions_for(changes, Commit("f", 0, ranges))

    # One task per 20,000 records, up to the number of cores, and more tasks only if a task would exceed 32 MiB.
    assert [partitions(records, 20) for records in (0, 1, 20_001, 10**6)] == [1, 1, 2, 4]
    wide = 1_501 * 20
    assert [partitions(records, wide) for records in (1, 1_000, 10_000, 10**8)] == [1, 1, 9, 200]
