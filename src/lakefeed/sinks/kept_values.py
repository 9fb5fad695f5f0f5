"""Finds values that a change event lacks, so that an upsert leaves them unchanged in the table.

If the newest change of a key lacks a value, the value comes from the newest older change in the batch that has it. If
no change has the value, the column ``KEPT`` lists it, and the statement keeps the stored row's value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.config.keyed import DELETED, OWN, POSITION_COLUMNS
from lakefeed.lazy import Column, DataFrame, DataType, StructType, sf, t
from lakefeed.records.decode.unavailable import Leaf, Path, Unavailable, rebuilt

if TYPE_CHECKING:
    from pyspark.sql.window import WindowSpec

KEPT = f"{OWN}_kept"
"""The column of the newest changes that lists values to leave as stored, by their indexes in ``leaves``: ``,3,7,``."""

LACKING = f"{OWN}_lacking"
"""A boolean column: whether a change lacks a value that the stored row may have."""

_VALUE = f"{OWN}_value"


@dataclass(frozen=True)
class KeptValues:
    """The values that a batch's changes may lack; ``leaves`` has their paths, values and types."""

    unavailable: Unavailable
    columns: StructType
    leaves: Sequence[Leaf]

    @classmethod
    def of(cls, unavailable: Unavailable | None, columns: StructType, *, keys: Collection[str]) -> KeptValues | None:
        """Return the values that rows of these columns may lack; None if no value can be missing."""
        if unavailable is None:
            return None
        leaves = [
            leaf
            for each in columns.fields
            if each.name not in {*keys, *POSITION_COLUMNS}
            for leaf in unavailable.leaves(sf.col(quoted((each.name,))), each.dataType, (each.name,))
        ]
        return cls(unavailable, columns, leaves) if leaves else None

    def lacking(self) -> Column:
        """Return a boolean column that is true for a change that lacks a value; false for deletes."""
        found = (sf.coalesce(leaf.lacking, sf.lit(False)) for leaf in self.leaves)
        return ~sf.col(DELETED) & reduce(or_, found)

    def newest(self, newest_first: WindowSpec) -> dict[str, Column]:
        """Return, for each value, a column with the newest value in a key's changes since the key's last delete."""
        whole = newest_first.rowsBetween(-(2**63), 2**63 - 1)
        found = {}
        for number, leaf in enumerate(self.leaves):
            deleted = sf.when(sf.col(DELETED), sf.struct(sf.lit(None).cast(leaf.type).alias("value")))
            has = deleted.when(~sf.coalesce(leaf.lacking, sf.lit(False)), sf.struct(leaf.value.alias("value")))
            found[f"{_VALUE}{number}"] = sf.first(has, ignorenulls=True).over(whole)
        return found

    def folded(self, latest: DataFrame) -> DataFrame:
        """Return the newest changes with the values of ``newest`` in their places, and with the column ``KEPT``."""
        numbers = self._numbers

        def resolved(path: Path, own: Column, _: DataType) -> Column | None:
            if path not in numbers:
                return None
            newest = sf.col(f"{_VALUE}{numbers[path]}")
            if self.unavailable.then != "keep":
                own = sf.when(self.leaves[numbers[path]].lacking, sf.lit(None)).otherwise(own)
            return sf.when(sf.col(DELETED) | newest.isNull(), own).otherwise(newest["value"])

        columns = {}
        for name in dict.fromkeys(path[0] for path in numbers):
            column = rebuilt(sf.col(quoted((name,))), self.columns[name].dataType, resolved, (name,))
            assert column is not None
            columns[name] = column
        values = {f"{_VALUE}{number}": sf.lit(str(number)) for number in numbers.values()}
        lacking = (sf.when(~sf.col(DELETED) & sf.col(each).isNull(), number) for each, number in values.items())
        columns[KEPT] = sf.concat_ws(",", sf.lit(""), *lacking, sf.lit(""))
        return latest.withColumns(columns).drop(*values)

    def value_of(self, column: str, *, marks: bool) -> str:
        """Return the SQL for a column's new value, from ``s`` to ``t``; a row marked as deleted keeps no value."""
        numbers = self._numbers

        def of(path: Path, type_: DataType) -> str:
            ours, theirs = (".".join([row, *(quoted((name,)) for name in path)]) for row in "st")
            if path in numbers:
                stored = f"CASE WHEN NOT coalesce(t.{DELETED}, false) THEN {theirs} END" if marks else theirs
                return f"CASE WHEN contains(s.{KEPT}, ',{numbers[path]},') THEN {stored} ELSE {ours} END"
            if isinstance(type_, t.StructType) and any(each[: len(path)] == path for each in numbers):
                parts = (f"{of((*path, name), type_[name].dataType)} AS {quoted((name,))}" for name in type_.names)
                return f"CASE WHEN {ours} IS NOT NULL THEN struct({', '.join(parts)}) END"
            return ours

        return of((column,), self.columns[column].dataType)

    def of_columns(self) -> dict[str, list[int]]:
        """Return, by column name in lower case, the indexes of its values in ``leaves``."""
        numbers: dict[str, list[int]] = {}
        for number, leaf in enumerate(self.leaves):
            numbers.setdefault(leaf.path[0].lower(), []).append(number)
        return numbers

    @property
    def _numbers(self) -> dict[Path, int]:
        return {leaf.path: number for number, leaf in enumerate(self.leaves)}
