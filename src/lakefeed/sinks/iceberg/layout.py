"""How a table's files are laid out: its partitions and the order within files, changed where the pipeline file was.

Changing either is a commit of metadata alone (partition evolution): files that are there stay as they are, new ones are
written the new way, and both are read by their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.values import PartitionTransform, SortColumn

UNITS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}


@dataclass(frozen=True)
class FileLayout:
    """Partitions and order.

    Attributes:
        partitions: column and transform of each, as Iceberg writes it: ``("id", "bucket[16]")``.
        order: of the rows in a file.
    """

    partitions: tuple[tuple[str, str], ...] = ()
    order: tuple[SortColumn, ...] = ()

    @classmethod
    def of_table(cls, table: Any) -> FileLayout:
        """What an Iceberg table has, by its Java object."""
        schema = table.schema()
        partitions = [
            (str(schema.findColumnName(each.sourceId())), str(each.transform().toString()))
            for each in table.spec().fields()
        ]
        order = [
            SortColumn(
                column=str(schema.findColumnName(each.sourceId())),
                descending=str(each.direction()) == "DESC",
                nulls_first="FIRST" in str(each.nullOrder().name()),
            )
            for each in table.sortOrder().fields()
            if str(each.transform().toString()) == "identity"
        ]
        # A field that was dropped from a table of format 1 stays as "void".
        return cls(tuple(each for each in partitions if each[1] != "void"), tuple(order))

    @classmethod
    def of_sink(cls, sink: IcebergSinkConfig) -> FileLayout:
        """The layout that a pipeline file requests."""
        return cls(tuple((each.column, _text(each)) for each in sink.partition_by), tuple(sink.sort_by))

    def renamed(self, columns: Sequence[tuple[tuple[str, ...], str]]) -> FileLayout:
        """The same after columns have got other names, one after the other: path and new last name of each."""

        def now(column: str) -> str:
            parts = column.split(".")
            for path, name in columns:
                if tuple(parts[: len(path)]) == path:
                    parts[len(path) - 1] = name
            return ".".join(parts)

        return FileLayout(
            tuple((now(column), transform) for column, transform in self.partitions),
            tuple(replace(each, column=now(each.column)) for each in self.order),
        )


def statements(table: str, *, have: FileLayout, want: FileLayout, partitions: bool, order: bool) -> Iterator[str]:
    """The statements after which new files are laid out as requested; none if they are.

    Args:
        table: catalog.namespace.table
        have: the table's.
        want: the pipeline file's.
        partitions: whether the file says something of partitions.
        order: whether it says something of order.
    """
    alter = f"ALTER TABLE {quoted(tuple(table.split('.')))}"
    if partitions and have.partitions != want.partitions:
        for each in have.partitions:
            if each not in want.partitions:
                yield f"{alter} DROP PARTITION FIELD {_sql(*each)}"
        for each in want.partitions:
            if each not in have.partitions:
                yield f"{alter} ADD PARTITION FIELD {_sql(*each)}"
    if order and have.order != want.order:
        # Within each file: a global order would shuffle each batch by ranges.
        yield f"{alter} WRITE LOCALLY ORDERED BY {_order_sql(want.order)}" if want.order else f"{alter} WRITE UNORDERED"


def _text(transform: PartitionTransform) -> str:
    width = f"[{transform.width}]" if transform.width else ""
    return f"{UNITS.get(transform.name, transform.name)}{width}"


def _sql(column: str, transform: str) -> str:
    path = quoted(tuple(column.split(".")))
    if transform == "identity":
        return path
    if match := re.fullmatch(r"(\w+)\[(\d+)\]", transform):
        return f"{match[1]}({match[2]}, {path})"
    return f"{transform}s({path})"


def _order_sql(order: Sequence[SortColumn]) -> str:
    return ", ".join(
        f"{quoted(tuple(each.column.split('.')))} {'DESC' if each.descending else 'ASC'} NULLS "
        f"{'FIRST' if each.nulls_first else 'LAST'}"
        for each in order
    )
