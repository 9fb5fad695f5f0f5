"""What makes a table fit new rows: ``ALTER TABLE`` statements of Iceberg's Spark SQL, in an order that is safe.

Each statement is one commit of the table's metadata and holds by itself: after a crash between two of them the
rest follows from the table as it is then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.errors import SchemaIncompatible
from lakefeed.records.schema.changes import Change
from lakefeed.records.schema.fit import by_name, carries_data, casts_to, find_field, refuse_same_but_for_case

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Path = tuple[str, ...]


def statements(
    table: str, *, have: StructType, want: StructType, changes: Sequence[Change] = (), grow: bool = True
) -> tuple[str, ...]:
    """The statements after which the table takes rows of ``want``; none if it does already.

    Nothing is ever dropped: a column that the rows lack stays, and becomes optional. Names are compared without
    regard to case, as Spark does.

    Args:
        table: catalog.namespace.table.
        have: the table's columns.
        want: the rows' columns.
        changes: of these the renamed fields count: what happened to the reader's schema, in order, or all that
            ``lakefeed.schema.renames`` knows of it.
        grow: False refuses new columns and renames none; columns may still become optional or wider.

    Returns:
        Renames, then columns made optional, then wider types, then all new columns in one statement.

    Raises:
        SchemaIncompatible: Iceberg has no such change, naming the column and both types; or a new column with
            ``grow=False``.
    """
    refuse_same_but_for_case(want, where="the rows")
    alter = f"ALTER TABLE {quoted(tuple(table.split('.')))}"
    renames, have = _renamed(have, want, changes if grow else ())
    plan = _Plan(table)
    plan.compare_fields(have, want, ())
    if plan.new and not grow:
        raise SchemaIncompatible(
            f"the table lacks columns that the rows have: {', '.join('.'.join(path) for path, _ in plan.new)}",
            where=f"table {table}",
            hint="ALTER TABLE … ADD COLUMNS, leave them out in transform.sql, or set schema.on_change: evolve",
        )
    return (
        *(f"{alter} RENAME COLUMN {quoted(path)} TO {quoted((name,))}" for path, name in renames),
        *(f"{alter} ALTER COLUMN {quoted(path)} DROP NOT NULL" for path in plan.optional),
        *(f"{alter} ALTER COLUMN {quoted(path)} TYPE {type_sql(wider)}" for path, wider in plan.wider),
        *(
            [f"{alter} ADD COLUMNS ({', '.join(f'{quoted(path)} {type_sql(new)}' for path, new in plan.new)})"]
            if plan.new
            else []
        ),
    )


def renamed_columns(
    *, have: StructType, want: StructType, changes: Sequence[Change] = (), grow: bool = True
) -> tuple[tuple[Path, str], ...]:
    """The columns that ``statements`` renames: each as it is called when its turn comes, and its new last name."""
    return tuple(_renamed(have, want, changes if grow else ())[0])


def type_sql(type_: DataType) -> str:
    """A type as SQL writes it, names quoted; all inside it optional, as a new column's parts have to be.

    Raises:
        SchemaIncompatible: an Iceberg table has no such type.
    """
    from pyspark.sql import types as t

    if isinstance(type_, t.StructType):
        fields = [
            f"{quoted((each.name,))}: {type_sql(each.dataType)}" for each in type_.fields if carries_data(each.dataType)
        ]
        return f"STRUCT<{', '.join(fields)}>"
    if isinstance(type_, t.ArrayType):
        return f"ARRAY<{type_sql(type_.elementType)}>"
    if isinstance(type_, t.MapType):
        return f"MAP<{type_sql(type_.keyType)}, {type_sql(type_.valueType)}>"
    known = (
        *(t.BooleanType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType, t.DecimalType),
        *(t.StringType, t.BinaryType, t.DateType, t.TimestampType, t.TimestampNTZType),
    )
    if not isinstance(type_, known):
        raise SchemaIncompatible(
            f"an Iceberg table has no columns of type {type_.simpleString()}",
            hint="cast the column, or leave it out, in transform.sql",
        )
    return type_.simpleString().upper()


@dataclass
class _Plan:
    """What has to become another, gathered on a walk through the columns of table and rows."""

    table: str
    optional: list[Path] = field(default_factory=list)
    wider: list[tuple[Path, DataType]] = field(default_factory=list)
    new: list[tuple[Path, DataType]] = field(default_factory=list)

    def compare_fields(self, have: StructType, want: StructType, path: Path) -> None:
        known = by_name(have)
        requested = by_name(want)
        for each in want.fields:
            there = known.get(each.name.lower())
            if not carries_data(each.dataType):
                requested.pop(each.name.lower(), None)
            elif there is None:
                self.new.append(((*path, each.name), each.dataType))
            else:
                self._compare(there.dataType, each.dataType, (*path, there.name), null=(there.nullable, each.nullable))
        for each in have.fields:
            if not each.nullable and each.name.lower() not in requested:
                self.optional.append((*path, each.name))

    def _compare(self, have: DataType, want: DataType, path: Path, *, null: tuple[bool, bool]) -> None:
        from pyspark.sql.types import ArrayType, MapType, StructType

        if null == (False, True):
            self.optional.append(path)
        if isinstance(have, StructType) and isinstance(want, StructType):
            self.compare_fields(have, want, path)
        elif isinstance(have, ArrayType) and isinstance(want, ArrayType):
            null = have.containsNull, want.containsNull
            self._compare(have.elementType, want.elementType, (*path, "element"), null=null)
        elif isinstance(have, MapType) and isinstance(want, MapType) and casts_to(want.keyType, have.keyType):
            null = have.valueContainsNull, want.valueContainsNull
            self._compare(have.valueType, want.valueType, (*path, "value"), null=null)
        elif casts_to(want, have):
            pass
        elif _promotes(have, want):
            self.wider.append((path, want))
        else:
            raise SchemaIncompatible(
                f"column {'.'.join(path)} is {have.simpleString()} in the table and {want.simpleString()} in the "
                "rows, and Iceberg cannot make the one of the other",
                where=f"table {self.table}",
                hint="cast it in transform.sql, or land it in a column of another name",
            )


def _promotes(have: DataType, want: DataType) -> bool:
    """Iceberg's type promotion, https://iceberg.apache.org/spec/#schema-evolution."""
    from pyspark.sql import types as t

    if isinstance(have, t.DecimalType) and isinstance(want, t.DecimalType):
        return have.scale == want.scale and have.precision <= want.precision
    return (isinstance(have, t.IntegerType) and isinstance(want, t.LongType)) or (
        isinstance(have, t.FloatType) and isinstance(want, t.DoubleType)
    )


def _renamed(
    have: StructType, want: StructType, changes: Sequence[Change]
) -> tuple[list[tuple[Path, str]], StructType]:
    """The renames that table and rows both bear out, and the table's columns after them."""
    renames = []
    for index, change in enumerate(changes):
        if change.kind != "renamed" or change.before is None:
            continue
        *parent, name = change.path.split(".")
        final = name
        for later in changes[index + 1 :]:
            if later.kind == "renamed" and later.before == final and later.path.split(".")[:-1] == parent:
                final = later.after
        ours, theirs = _struct_at(have, parent), _struct_at(want, parent)
        if (
            ours is None
            or theirs is None
            or find_field(theirs, final) is None
            or find_field(theirs, change.before) is not None
        ):
            continue
        old = find_field(ours, change.before)
        if old is not None and find_field(ours, name) is None:
            renames.append(((*parent, old.name), name))
            have = _with_name(have, (*parent, old.name), name)
    return renames, have


def _struct_at(type_: DataType, path: Sequence[str]) -> StructType | None:
    """The struct at a path; None if the path leads elsewhere."""
    from pyspark.sql.types import StructType

    for name in path:
        inner = _inner(type_, name)
        if inner is None:
            return None
        type_ = inner
    return type_ if isinstance(type_, StructType) else None


def _inner(type_: DataType, name: str) -> DataType | None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type_, StructType):
        found = find_field(type_, name)
        return found.dataType if found else None
    if isinstance(type_, ArrayType) and name == "element":
        return type_.elementType
    if isinstance(type_, MapType) and name == "value":
        return type_.valueType
    return None


def _with_name(type_: DataType, path: Path, name: str) -> StructType:
    renamed = _replaced(type_, path, name)
    from pyspark.sql.types import StructType

    if not isinstance(renamed, StructType):
        raise TypeError(f"{path} does not begin in a struct")
    return renamed


def _replaced(type_: DataType, path: Path, name: str) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    head, *rest = path
    if isinstance(type_, ArrayType):
        return ArrayType(_replaced(type_.elementType, tuple(rest), name), type_.containsNull)
    if isinstance(type_, MapType):
        return MapType(type_.keyType, _replaced(type_.valueType, tuple(rest), name), type_.valueContainsNull)
    if not isinstance(type_, StructType):
        return type_
    fields = []
    for each in type_.fields:
        if each.name.lower() != head.lower():
            fields.append(each)
        elif rest:
            fields.append(StructField(each.name, _replaced(each.dataType, tuple(rest), name), each.nullable))
        else:
            fields.append(StructField(name, each.dataType, each.nullable))
    return StructType(fields)
