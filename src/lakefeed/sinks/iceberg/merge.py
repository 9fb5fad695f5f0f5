"""The MERGE that lands the newest change of each key, as a statement of Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.config.keyed import DELETED, POSITION_COLUMNS

TOPIC, PARTITION, OFFSET = POSITION_COLUMNS
KEY_MOVED = "lakefeed: a key has changes in more than one partition"
"""What Spark's error says where offsets cannot tell which change is newer."""

PLACE = "topic %s, partition %d, offset %d"
"""Where the change is; a format string of Spark's ``format_string``."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The smallest and the greatest value of a key column in a batch, as SQL."""

    column: str
    lowest: str
    highest: str


@dataclass(frozen=True, kw_only=True)
class MergeStatement:
    """How changes meet a table.

    Attributes:
        table: catalog.namespace.table.
        columns: the table's.
        keys: those of them that a row is known by.
        order_by: columns that say what is newer; none for the offset.
        on_delete: whether deleted rows go or are marked.
    """

    table: str
    columns: Sequence[str]
    keys: Sequence[str]
    order_by: Sequence[str] = ()
    on_delete: Literal["remove", "mark"] = "remove"

    def statement(self, source: str, *, bounds: Sequence[Bound] = ()) -> str:
        """The statement; it changes nothing if it is run a second time.

        Args:
            source: a view with the table's columns and ``lakefeed_deleted``, one row for each key.
            bounds: of the keys in it, so that Iceberg reads no file that can have none of them.
        """
        where = [f"t.{name(key)} = s.{name(key)}" for key in self.keys]
        where += [
            f"t.{name(each.column)} BETWEEN {each.lowest} AND {each.highest}"
            for each in bounds
            if each.column in self.keys
        ]
        newer = self._newer()
        updates = ", ".join(f"t.{name(column)} = s.{name(column)}" for column in self.columns)
        listed = ", ".join(map(name, self.columns))
        values = ", ".join(f"s.{name(column)}" for column in self.columns)
        removes = self.on_delete == "remove"
        inserts = f"AND NOT s.{DELETED} " if removes else ""
        return "\n".join(
            [
                f"MERGE INTO {quoted(tuple(self.table.split('.')))} t USING {name(source)} s",
                f"ON {' AND '.join(where)}",
                *([f"WHEN MATCHED AND s.{DELETED} AND {newer} THEN DELETE"] if removes else []),
                f"WHEN MATCHED AND {newer} THEN UPDATE SET {updates}",
                f"WHEN NOT MATCHED {inserts}THEN INSERT ({listed}) VALUES ({values})",  # noqa: S608
            ]
        )

    def _newer(self) -> str:
        """Whether the change is newer than the row; a row without a position was written by somebody else, long ago."""
        if self.order_by:
            # As a whole it is a total order, so that the outcome does not hang on which of two came first.
            order = (*self.order_by, *POSITION_COLUMNS)
            return f"{_struct('s', order)} > {_struct('t', order)}"
        return (
            f"(t.{OFFSET} IS NULL OR CASE WHEN s.{TOPIC} = t.{TOPIC} AND s.{PARTITION} = t.{PARTITION} "
            f"THEN s.{OFFSET} > t.{OFFSET} ELSE CAST(raise_error(format_string('{KEY_MOVED}: {PLACE}', "
            f"s.{TOPIC}, s.{PARTITION}, s.{OFFSET})) AS BOOLEAN) END)"
        )


def history_statement(table: str, source: str, *, columns: Sequence[str], keys: Sequence[str]) -> str:
    """The statement that adds those changes to the history that it has not got; by position, since it moves none."""
    same = " AND ".join(f"h.{name(column)} <=> s.{name(column)}" for column in (*POSITION_COLUMNS, *keys))
    listed = ", ".join(map(name, columns))
    values = ", ".join(f"s.{name(column)}" for column in columns)
    return "\n".join(
        [
            f"MERGE INTO {quoted(tuple(table.split('.')))} h USING {name(source)} s",
            f"ON {same}",
            f"WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})",  # noqa: S608
        ]
    )


def name(column: str) -> str:
    """A column's or view's name as SQL takes it."""
    return quoted((column,))


def _struct(alias: str, columns: Sequence[str]) -> str:
    fields = (f"'{index}', {alias}.{name(column)}" for index, column in enumerate(columns))
    return f"named_struct({', '.join(fields)})"
