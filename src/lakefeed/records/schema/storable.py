"""Columns that carry no data, and that no file has a column for: records without fields, arrays of nulls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


def carries_data(type_: DataType) -> bool:
    """Whether there is anything in the type but nulls: its values differ in more than in being there."""
    from pyspark.sql.types import ArrayType, MapType, NullType, StructType

    if isinstance(type_, StructType):
        return any(carries_data(each.dataType) for each in type_.fields)
    if isinstance(type_, ArrayType):
        return carries_data(type_.elementType)
    if isinstance(type_, MapType):
        return carries_data(type_.valueType)
    return not isinstance(type_, NullType)


class Storable:
    """A transform whose rows have no columns without data, at no level.

    Args:
        transform: from decoded rows to the table's.
    """

    def __init__(self, transform: Callable[[Any], DataFrame]) -> None:
        self._transform = transform
        self._reported: set[str] = set()
        self._notes: list[str] = []

    def __call__(self, decoded_rows: Any) -> DataFrame:
        """The rows; themselves if all their columns carry data.

        Raises:
            ConfigError: none does.
        """
        rows = self._transform(decoded_rows)
        left_out = dict(_without_data(rows.schema, ""))
        if not left_out:
            return rows
        for path, what in left_out.items():
            if path not in self._reported:
                self._reported.add(path)
                self._notes.append(f"column {path} is left out: it carries no data ({what})")
        kept = [each for each in rows.schema.fields if carries_data(each.dataType)]
        if not kept:
            message = ", ".join(f"{path} ({what})" for path, what in left_out.items())
            raise ConfigError(
                f"no column of the rows carries data: {message}",
                hint="name metadata below decode, such as offset, or make a column in transform.sql",
            )
        from pyspark.sql import functions as sf

        return rows.select(*(_pruned(sf.col(_quoted(each.name)), each.dataType).alias(each.name) for each in kept))

    def notes(self) -> tuple[str, ...]:
        """What was left out since the last call; each column once."""
        taken, self._notes = tuple(self._notes), []
        return taken


def _without_data(type_: DataType, path: str) -> Iterator[tuple[str, str]]:
    """The outermost columns and fields without data, and what each is."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type_, StructType):
        for each in type_.fields:
            below = f"{path}.{each.name}" if path else each.name
            if carries_data(each.dataType):
                yield from _without_data(each.dataType, below)
            else:
                yield below, _described(each.dataType)
    elif isinstance(type_, ArrayType):
        yield from _without_data(type_.elementType, f"{path}.element")
    elif isinstance(type_, MapType):
        yield from _without_data(type_.valueType, f"{path}.value")


def _described(type_: DataType) -> str:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type_, StructType):
        return "a record of such fields" if type_.fields else "a record without fields"
    if isinstance(type_, ArrayType):
        return f"an array of {_described(type_.elementType).removeprefix('a ')}"
    if isinstance(type_, MapType):
        return f"a map of {_described(type_.valueType).removeprefix('a ')}"
    return "null"


def _pruned(column: Column, type_: DataType) -> Column:
    """The column without the fields that carry no data; the column itself if there are none."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, MapType, StructType

    if next(_without_data(type_, ""), None) is None:
        return column
    if isinstance(type_, StructType):
        fields = [
            _pruned(column.getField(each.name), each.dataType).alias(each.name)
            for each in type_.fields
            if carries_data(each.dataType)
        ]
        return sf.when(column.isNotNull(), sf.struct(*fields))
    if isinstance(type_, ArrayType):
        items = type_.elementType
        return sf.transform(column, lambda item: _pruned(item, items))
    assert isinstance(type_, MapType)  # Others have no parts.
    values = type_.valueType
    return sf.transform_values(column, lambda _, item: _pruned(item, values))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
