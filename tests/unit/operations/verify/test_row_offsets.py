"""The offsets in the rows of a real Iceberg table are compared with the ranges of the ledger."""

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakefeed.errors import ConfigError
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.verify.row_offsets import IcebergRows, Letter, RowCoverage, count_keyed_rows, scan_row_offsets

FIELDS = [
    ("id", pa.int64()),
    ("kafka_topic", pa.string()),
    ("kafka_partition", pa.int32()),
    ("kafka_offset", pa.int64()),
]


def table(catalog: Catalog, rows: list[tuple[Any, ...]], *, columns: int = 4) -> Table:
    schema = pa.schema(FIELDS[:columns])
    made = catalog.create_table("ns.rows", schema=schema)
    made.append(pa.Table.from_pylist([dict(zip(schema.names, row, strict=False)) for row in rows], schema=schema))
    return made


def test_rows_are_counted_by_partition_and_by_whether_a_commit_contains_their_offset(catalog: Catalog) -> None:
    rows = [
        *((number, "a", 0, number) for number in range(10, 20) if number not in (13, 14, 17)),
        (1, "a", 0, 15),
        (2, "a", 0, 15),
        (3, "a", 0, 4),
        (4, "a", 0, 20),
        (5, "a", 7, 0),
        (6, "another's", 0, 12),
        (7, None, None, None),
        (8, "b", 0, 0),
    ]
    spans = [OffsetRange("a", 0, 10, 20), OffsetRange("b", 0, 0, 2)]
    begins = {("a", 0): 10, ("b", 0): 0}
    found = scan_row_offsets(
        IcebergRows(table(catalog, rows)), spans, topics=["a", "b"], begins=begins, letters=[Letter("a", 0, 17)]
    )
    assert found == {
        ("a", 0): RowCoverage(rows=9, offsets=7, before=1, outside=1, repeated=((15, 3),), absent=((13, 15),)),
        ("a", 7): RowCoverage(outside=1),
        ("b", 0): RowCoverage(rows=1, offsets=1, absent=((1, 2),)),
    }


def test_offsets_between_two_ranges_are_neither_covered_nor_missing(catalog: Catalog) -> None:
    here = [2, 3, 5, 6, 10, 12]
    spans = [OffsetRange("a", 0, 2, 4), OffsetRange("a", 0, 5, 8), OffsetRange("a", 0, 10, 14)]
    rows = [(number, "a", 0, number) for number in [*here, 0, 4, 9]]
    letters = [Letter("a", 0, 9), Letter("a", 0, 13), Letter("a", 0, 30)]
    found = scan_row_offsets(
        IcebergRows(table(catalog, rows)), spans, topics=["a"], begins={("a", 0): 5}, letters=letters
    )
    # The oldest remaining commit of the feed begins at 5, so earlier rows outside of backfills may be of expired
    # commits.
    assert found == {("a", 0): RowCoverage(rows=6, offsets=6, before=2, outside=1, absent=((7, 8), (11, 12)))}


def test_at_most_20_repeated_offsets_and_missing_ranges_are_listed(catalog: Catalog) -> None:
    rows = [(number, "a", 0, number) for number in range(0, 100, 2)] * 2
    found = scan_row_offsets(
        IcebergRows(table(catalog, rows)), [OffsetRange("a", 0, 0, 100)], topics=["a"], begins={}, letters=()
    )["a", 0]
    assert (found.rows, found.offsets) == (100, 50)
    assert len(found.repeated) == len(found.absent) == 20
    assert (found.repeated[0], found.absent[-1]) == ((0, 2), (39, 40))


def test_the_error_for_a_table_without_metadata_columns_names_these_columns(catalog: Catalog) -> None:
    without = table(catalog, [(1, "a")], columns=2)
    with pytest.raises(ConfigError, match="kafka_partition and kafka_offset"):
        scan_row_offsets(IcebergRows(without), [OffsetRange("a", 0, 0, 1)], topics=["a"], begins={}, letters=())


def test_keys_with_several_rows_are_listed(catalog: Catalog) -> None:
    rows = table(catalog, [(1, "a", 0, 5), (1, "a", 0, 6), (2, "a", 0, 7)])
    assert count_keyed_rows(IcebergRows(rows), ["ID"]) == (3, (("1", 2),))
