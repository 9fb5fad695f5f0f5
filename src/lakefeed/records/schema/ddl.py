"""Plans the ``ALTER TABLE`` statements by which an Iceberg table accepts new rows, and the defaults of new columns.

Each statement is a separate commit. After a crash between two statements, the next start plans the remaining
statements from the table's current columns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lakefeed.clients.iceberg.sql import Path, quoted
from lakefeed.clients.spark.statements import Statement, parts
from lakefeed.errors import SchemaIncompatible
from lakefeed.lazy import DataType, StructType, t
from lakefeed.records.schema.avro import NO_DEFAULT, AvroSchema, Primitive, Ref, Type, members
from lakefeed.records.schema.changes import Change
from lakefeed.records.schema.fit import (
    by_name,
    carries_data,
    casts_to,
    find_field,
    inner_types,
    refuse_same_but_for_case,
)
from lakefeed.records.schema.parse import parse

_PLAIN = {"boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string", "binary", "date"}
_PLAIN |= {"timestamp", "timestamp_ntz"}


def statements(
    table: str,
    *,
    have: StructType,
    want: StructType,
    changes: Sequence[Change] = (),
    grow: bool = True,
    defaults: Mapping[str, tuple[str, str]] | None = None,
) -> tuple[str, ...]:
    """Return the statements that make the table accept rows of type ``want``; empty if it accepts them already.

    A column that the rows lack stays and becomes optional. Names are compared without case, as in Spark.

    Args:
        table: catalog.namespace.table.
        have: the table's columns.
        want: the rows' columns.
        changes: the changes of the reader's schema, in order; only the renames are used.
        grow: False refuses new columns and does not rename columns; columns may still become optional or wider.
        defaults: the defaults of new columns for existing rows: see ``column_defaults``.

    Raises:
        SchemaIncompatible: Iceberg does not support a change of a type, or there is a new column with ``grow=False``.
    """
    refuse_same_but_for_case(want, where="the rows")
    alter = f"ALTER TABLE {quoted(tuple(table.split('.')))}"
    renames, have = find_renames(have, want, changes if grow else ())
    plan = _Plan(table)
    plan.compare_fields(have, want, ())
    if plan.new and not grow:
        what = f"the table lacks columns that the rows have: {', '.join('.'.join(path) for path, _ in plan.new)}"
        hint = "set schema.on_change: evolve; or ALTER TABLE … ADD COLUMNS; or omit them in transform.sql"
        raise SchemaIncompatible(what, where=f"table {table}", hint=hint)
    new = [_new_column(path, type_, defaults or {}) for path, type_ in plan.new]
    added = f"{alter} ADD COLUMNS ({', '.join(each.sql for each in new)})"
    return (
        *(f"{alter} RENAME COLUMN {quoted(path)} TO {quoted((name,))}" for path, name in renames),
        *(f"{alter} ALTER COLUMN {quoted(path)} DROP NOT NULL" for path in plan.optional),
        *(f"{alter} ALTER COLUMN {quoted(path)} TYPE {type_sql(wider)}" for path, wider in plan.wider),
        *([Statement.of(added, {name: value for each in new for name, value in each.values.items()})] if new else []),
    )


def trial_steps(
    *, have: StructType, want: StructType, changes: Sequence[Change] = (), grow: bool = True
) -> list[list[list[Any]]]:
    """Return the changes of ``statements`` for ``io.lakefeed.commit.TrialSchema``: one list of changes per commit."""
    renames, have = find_renames(have, want, changes if grow else ())
    plan = _Plan("")
    plan.compare_fields(have, want, ())
    steps: list[list[list[Any]]] = [
        *([["rename", ".".join(path), name]] for path, name in renames),
        *([["optional", ".".join(path)]] for path in plan.optional),
        *([["widen", ".".join(path), wider.json()]] for path, wider in plan.wider),
    ]
    new: list[list[Any]] = [["add", ".".join(path[:-1]) or None, path[-1], t.json()] for path, t in plan.new]
    return [*steps, *([new] if new else [])]


def _new_column(path: Path, type_: DataType, defaults: Mapping[str, tuple[str, str]]) -> Statement:
    kind, default = defaults.get(path[0], ("", "")) if len(path) == 1 else ("", "")
    if kind != type_.typeName():
        return Statement.of(column_sql(path, type_), {})
    text, values = parts(default)
    return Statement.of(f"{column_sql(path, type_)} DEFAULT {text}", values)


def column_sql(path: Path, type_: DataType) -> str:
    return f"{quoted(path)} {type_sql(type_, variants=True)}"


def type_sql(type_: DataType, *, variants: bool = False) -> str:
    """Return a type in SQL with quoted names; all inner fields are optional, as Iceberg requires in new columns.

    ``variants``: whether the table can have variants.
    """
    inner = partial(type_sql, variants=variants)
    if isinstance(type_, t.StructType):
        stored = [field for field in type_.fields if carries_data(field.dataType)]
        return f"STRUCT<{', '.join(f'{quoted((field.name,))}: {inner(field.dataType)}' for field in stored)}>"
    if isinstance(type_, t.ArrayType):
        return f"ARRAY<{inner(type_.elementType)}>"
    if isinstance(type_, t.MapType):
        return f"MAP<{inner(type_.keyType)}, {inner(type_.valueType)}>"
    if variants and isinstance(type_, t.VariantType):
        return "VARIANT"
    # A string with a collation has the type name of a plain string, but a longer simpleString.
    if type_.typeName() not in _PLAIN or " " in type_.simpleString():
        hint = "cast or omit the column in transform.sql"
        raise SchemaIncompatible(f"an Iceberg table has no columns of type {type_.simpleString()}", hint=hint)
    return type_.simpleString().upper()


@dataclass
class _Plan:
    """Compares the table's columns with the rows' columns, and collects the changes."""

    table: str
    optional: list[Path] = field(default_factory=list)
    wider: list[tuple[Path, DataType]] = field(default_factory=list)
    new: list[tuple[Path, DataType]] = field(default_factory=list)

    def compare_fields(self, have: StructType, want: StructType, path: Path) -> None:
        known = by_name(have)
        stored = [column for column in want.fields if carries_data(column.dataType)]
        for column in stored:
            own = known.get(column.name.lower())
            if own is None:
                self.new.append(((*path, column.name), column.dataType))
            else:
                null = own.nullable, column.nullable
                self._compare(own.dataType, column.dataType, (*path, own.name), null=null)
        names = {column.name.lower() for column in stored}
        missing = [column for column in have.fields if column.name.lower() not in names]
        self.optional += [(*path, column.name) for column in missing if not column.nullable]

    def _compare(self, have: DataType, want: DataType, path: Path, *, null: tuple[bool, bool]) -> None:
        if null == (False, True):
            self.optional.append(path)
        if isinstance(have, t.StructType) and isinstance(want, t.StructType):
            self.compare_fields(have, want, path)
        elif isinstance(have, t.ArrayType) and isinstance(want, t.ArrayType):
            null = have.containsNull, want.containsNull
            self._compare(have.elementType, want.elementType, (*path, "element"), null=null)
        elif isinstance(have, t.MapType) and isinstance(want, t.MapType) and casts_to(want.keyType, have.keyType):
            null = have.valueContainsNull, want.valueContainsNull
            self._compare(have.valueType, want.valueType, (*path, "value"), null=null)
        elif _promotes(have, want):
            self.wider.append((path, want))
        elif not casts_to(want, have):
            raise SchemaIncompatible(
                f"column {'.'.join(path)} is {have.simpleString()} in the table and {want.simpleString()} in the "
                "rows, and Iceberg cannot change the one type to the other",
                where=f"table {self.table}",
                hint="cast the column in transform.sql, or land it in a column of another name",
            )


def _promotes(have: DataType, want: DataType) -> bool:
    """Return whether Iceberg can promote the type: https://iceberg.apache.org/spec/#schema-evolution."""
    if isinstance(have, t.DecimalType) and isinstance(want, t.DecimalType):
        return have.scale == want.scale and have.precision < want.precision
    return (type(have), type(want)) in {(t.IntegerType, t.LongType), (t.FloatType, t.DoubleType)}


def find_renames(
    have: StructType, want: StructType, changes: Sequence[Change]
) -> tuple[list[tuple[Path, str]], StructType]:
    """Return the renames (path, new name) that the table still lacks, and its columns after these renames."""
    have = deepcopy(have)
    applied = []
    renames = [change for change in changes if change.kind == "renamed"]
    for index, change in enumerate(renames):
        *parent, name = change.path.split(".")
        final = name
        for later in renames[index + 1 :]:
            if later.before == final and later.path.split(".")[:-1] == parent:
                final = later.after
        ours, theirs = _struct_at(have, parent), _struct_at(want, parent)
        if ours is None or theirs is None:
            continue
        before = str(change.before)
        old = find_field(ours, before)
        is_confirmed = find_field(theirs, final) is not None and find_field(theirs, before) is None
        if is_confirmed and old is not None and find_field(ours, name) is None:
            applied.append(((*parent, old.name), name))
            old.name = name
    return applied, have


def _struct_at(type_: DataType, path: Sequence[str]) -> StructType | None:
    for name in path:
        inner = {step.lower(): part for step, part in reversed(inner_types(type_))}.get(name.lower())
        if inner is None:
            return None
        type_ = inner
    return type_ if isinstance(type_, t.StructType) else None


_NAMES_IN_SPARK = {"int": "integer"}


def column_defaults(text: str) -> Mapping[str, tuple[str, str]]:
    """Return Spark type and SQL default of those fields in an Avro record schema that have a default.

    A default of null is omitted, because a new column is null in existing rows anyway. Defaults of records, arrays,
    bytes and logical types are omitted, too.
    """
    schema = parse(text)
    defaults = {}
    for at, of_record in enumerate(schema.record.fields):
        if of_record.default is NO_DEFAULT or of_record.default is None:
            continue
        kind = _kind_of_default(schema, of_record.type)
        sql = None if kind is None else _default_sql(kind, of_record.default, f"default{at}")
        if kind is not None and sql is not None:
            defaults[of_record.name] = (_NAMES_IN_SPARK.get(kind, kind), sql)
    return defaults


def _kind_of_default(schema: AvroSchema, type_: Type) -> str | None:
    """Return the name of a primitive type, also of a nullable one; None for other types."""
    flat = members(type_)
    if len(flat) != 1:
        return None
    match flat[0]:
        case Primitive(name, None):
            return name
        case Ref() as ref if schema.look_up(ref).kind == "enum":
            return "string"
    return None


def _default_sql(kind: str, value: Any, name: str) -> str | None:
    match kind:
        case "boolean" if isinstance(value, bool):
            return json.dumps(value)
        case "int" | "long" if isinstance(value, int):
            return str(value)
        case "float" | "double" if isinstance(value, int | float) and math.isfinite(value):
            return f"CAST('{value!r}' AS {kind.upper()})"
        case "string" if isinstance(value, str):
            return Statement.of(f":{name}", {name: value})
    return None
