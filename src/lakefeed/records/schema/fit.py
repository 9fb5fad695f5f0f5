"""Rows made to fit a table's columns: order, missing columns and fields as nulls, narrower types widened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError, SchemaIncompatible

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType


def align_columns(rows: DataFrame, table_schema: StructType) -> DataFrame:
    """The rows with the table's columns, in its order; ``rows`` itself if they fit already.

    What the rows lack becomes null, inside structs, arrays of structs and map values too; a null struct stays
    null. A column that can be nothing but null is left out if the table lacks it. Types are widened where no
    value is lost. It is a projection: batches and streams alike, no Python in it.

    Args:
        rows: any rows; names are compared without regard to case, as Spark does.
        table_schema: the table's columns.

    Raises:
        SchemaIncompatible: the rows have what the table does not, or another type.
    """
    from pyspark.sql import functions as sf

    if same_type(rows.schema, table_schema):
        return rows
    refuse_same_but_for_case(rows.schema, where="the rows")
    _refuse_extra(rows.schema, table_schema, "")
    there = by_name(rows.schema)
    columns = []
    for want in table_schema.fields:
        have = there.get(want.name.lower())
        column = (
            sf.lit(None).cast(want.dataType)
            if have is None
            else _fitted(sf.col(_quoted(have.name)), have.dataType, want.dataType, want.name)
        )
        columns.append(column.alias(want.name))
    return rows.select(*columns)


def same_type(have: DataType, want: DataType) -> bool:
    """Whether two types have the same names and types in the same order; nullability does not count."""
    return have.simpleString() == want.simpleString()


def find_field(struct: StructType, name: str) -> StructField | None:
    """The field of that name, without regard to case."""
    return next((each for each in struct.fields if each.name.lower() == name.lower()), None)


def by_name(struct: StructType) -> dict[str, StructField]:
    """The fields by their names in lower case; of two that differ in case only, the first."""
    return {each.name.lower(): each for each in reversed(struct.fields)}


def casts_to(have: DataType, want: DataType) -> bool:
    """Whether every value of one type is a value of the other."""
    from pyspark.sql import types as t

    if same_type(have, want) or not carries_data(have):
        return True
    if isinstance(have, t.DecimalType) and isinstance(want, t.DecimalType):
        return have.scale <= want.scale and have.precision - have.scale <= want.precision - want.scale
    wider: dict[type[DataType], tuple[type[DataType], ...]] = {
        t.ByteType: (t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType),
        t.ShortType: (t.IntegerType, t.LongType, t.FloatType, t.DoubleType),
        t.IntegerType: (t.LongType, t.DoubleType),
        t.FloatType: (t.DoubleType,),
    }
    return isinstance(want, wider.get(type(have), ()))


def refuse_same_but_for_case(struct: StructType, *, where: str, path: str = "") -> None:
    """Refuses two fields of one struct that Spark would take for one.

    Raises:
        SchemaIncompatible: names both.
    """
    seen: dict[str, str] = {}
    for each in struct.fields:
        first = seen.setdefault(each.name.lower(), each.name)
        if first is not each.name:
            what = "are there twice" if first == each.name else "differ in case only"
            raise SchemaIncompatible(
                f"the columns {path}{first} and {path}{each.name} {what}",
                where=where,
                hint="give one of them another name",
            )
        for inner, name in _inner_structs(each.dataType, f"{path}{each.name}."):
            refuse_same_but_for_case(inner, where=where, path=name)


def _inner_structs(type_: DataType, path: str) -> list[tuple[StructType, str]]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type_, StructType):
        return [(type_, path)]
    if isinstance(type_, ArrayType):
        return _inner_structs(type_.elementType, f"{path}element.")
    if isinstance(type_, MapType):
        return _inner_structs(type_.valueType, f"{path}value.")
    return []


def _fitted(column: Column, have: DataType, want: DataType, path: str) -> Column:
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, MapType, StructType

    if same_type(have, want):
        return column
    if not carries_data(have):
        return sf.lit(None).cast(want)
    if isinstance(have, StructType) and isinstance(want, StructType):
        return _fitted_struct(column, have, want, path)
    if isinstance(have, ArrayType) and isinstance(want, ArrayType):
        inner, requested = have.elementType, want.elementType
        return sf.transform(column, lambda item: _fitted(item, inner, requested, f"{path}.element"))
    if isinstance(have, MapType) and isinstance(want, MapType) and same_type(have.keyType, want.keyType):
        inner, requested = have.valueType, want.valueType
        return sf.transform_values(column, lambda _, item: _fitted(item, inner, requested, f"{path}.value"))
    if not casts_to(have, want):
        raise SchemaIncompatible(
            f"column {path} is {have.simpleString()} in the rows and {want.simpleString()} in the table",
            hint="cast it in transform.sql",
        )
    return column.cast(want)


def _fitted_struct(column: Column, have: StructType, want: StructType, path: str) -> Column:
    from pyspark.sql import functions as sf

    _refuse_extra(have, want, f"{path}.")
    fields, known = [], by_name(have)
    for each in want.fields:
        there = known.get(each.name.lower())
        field = (
            sf.lit(None).cast(each.dataType)
            if there is None
            else _fitted(column.getField(there.name), there.dataType, each.dataType, f"{path}.{each.name}")
        )
        fields.append(field.alias(each.name))
    return sf.when(column.isNotNull(), sf.struct(*fields))


def _refuse_extra(have: StructType, want: StructType, path: str) -> None:
    known = by_name(want)
    extra = [
        f"{path}{each.name}" for each in have.fields if each.name.lower() not in known and carries_data(each.dataType)
    ]
    if extra:
        raise SchemaIncompatible(
            f"the table lacks what the rows have: {', '.join(extra)}",
            hint="ALTER TABLE … ADD COLUMNS, or leave them out in transform.sql",
        )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


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


class StorableRows:
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
