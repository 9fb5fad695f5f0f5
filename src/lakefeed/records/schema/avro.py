"""Avro schemas as graphs that can be merged: one mapping has the named types, and other types refer to its entries.

Terms and rules: https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from lakefeed.errors import ConfigError

NO_DEFAULT: Final = object()
"""``Field.default`` of a field without a default; None would be the default null."""
PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
LOGICAL: Final = {
    "int": {"date", "time-millis"},
    "long": {
        "time-micros",
        *(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")),
    },
    "bytes": {"decimal"},
    "string": {"uuid"},
    "fixed": {"decimal", "uuid", "duration"},
}
# Producers may register any schema. A few named types that use each other can describe millions of columns, so the
# limits count columns, not characters. The decoder has the same limits (``io.lakefeed.decode.SchemaLimits``).
MOST_COLUMNS = 10_000
"""The most columns of a schema, including inner fields at all levels."""
DEEPEST = 100
"""The most records, arrays, maps and unions that are nested in each other."""
_SHORTEST_LIST = 5
# By writer's type, the reader's types to which Avro's schema resolution converts values. Iceberg widens a column only
# as in _WIDENS.
_READS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_WIDENS = {"int": "long", "float": "double"}
_UNITS = ("millis", "micros", "nanos")


@dataclass(frozen=True)
class Primitive:
    """A primitive type; ``logical`` is None without a logical type, and if Avro does not define it for this type."""

    name: str
    logical: str | None = None
    precision: int | None = None
    scale: int = 0


@dataclass(frozen=True)
class Container:
    kind: Literal["array", "map"]
    values: Type

    @property
    def step(self) -> str:
        """The step for the inner values in a column's path: element or value."""
        return "element" if self.kind == "array" else "value"


@dataclass(frozen=True)
class Union:
    members: tuple[Type, ...]


@dataclass(frozen=True)
class Ref:
    """A reference to a named type by its key in ``AvroSchema.types``."""

    key: str


ANY = "lakefeed.json"
"""The attribute of a STRING field that accepts any JSON value as text (``io.lakefeed.decode.JsonValue``)."""

Type = Primitive | Container | Union | Ref
NULL: Final = Primitive("null")


@dataclass
class Field:
    name: str
    type: Type
    default: Any = NO_DEFAULT
    aliases: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    absent: bool = field(default=False, compare=False)
    """Whether the writer's schema of the last merge lacks this field."""


@dataclass
class Named:
    """A named type: a record with fields, an enum with symbols, or a fixed with size and logical type."""

    kind: Literal["record", "enum", "fixed"]
    name: str
    aliases: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    size: int = 0
    logical: Primitive = NULL

    @property
    def short_names(self) -> set[str]:
        return {short_name(name) for name in (self.name, *self.aliases)}


@dataclass
class AvroSchema:
    root: Type
    types: dict[str, Named]
    """The named types by full name; ``parse`` can put a prefix before the names."""

    def look_up(self, ref: Ref) -> Named:
        return self.types[ref.key]

    @property
    def record(self) -> Named:
        """The outermost record; ``parse`` refuses a schema without an outermost record."""
        assert isinstance(self.root, Ref)
        return self.look_up(self.root)


def union(types: list[Type]) -> Type:
    """Return a union. As in Spark, a union of int and long is a long, and a union of float and double is a double."""
    flat = tuple(types)
    for narrow, wide in (("int", "long"), ("float", "double")):
        if {member for member in flat if member != NULL} == {Primitive(narrow), Primitive(wide)}:
            flat = tuple(member for member in flat if member != Primitive(narrow))
    return flat[0] if len(flat) == 1 else Union(flat)


def members(type_: Type) -> tuple[Type, ...]:
    """Return a union's members except null; for any other type, the type itself as the only member."""
    flat = type_.members if isinstance(type_, Union) else (type_,)
    return tuple(member for member in flat if member != NULL)


def nullable(type_: Type) -> bool:
    return type_ == NULL or (isinstance(type_, Union) and NULL in type_.members)


def with_null(type_: Type, *, first: bool = True) -> Type:
    """Return a nullable type: a union with null as its first or last member."""
    rest = members(type_)
    if not rest:
        return NULL
    return Union((NULL, *rest) if first else (*rest, NULL))


def type_kind(type_: Type) -> str:
    """Return the name by which Avro distinguishes the members of a union."""
    match type_:
        case Primitive(name=kind) | Container(kind=kind) | Ref(key=kind):
            return kind
    return "union"


def short_name(full: str) -> str:
    return full.rpartition(".")[2]


def schema_json(schema: AvroSchema) -> str:
    return json.dumps(_document(schema.root, schema, set(), ""), ensure_ascii=False)


def _document(type_: Type, schema: AvroSchema, defined: set[str], around: str) -> Any:
    match type_:
        case Primitive():
            attributes = _logical_attributes(type_)
            return {"type": type_.name, **attributes} if attributes else type_.name
        case Container():
            part = "items" if type_.kind == "array" else "values"
            return {"type": type_.kind, part: _document(type_.values, schema, defined, around)}
        case Union():
            return [_document(member, schema, defined, around) for member in type_.members]
    named = schema.look_up(type_)
    if named.name in defined:
        return named.name
    defined.add(named.name)
    namespace, _, name = named.name.rpartition(".")
    head: dict[str, Any] = {"name": name} if namespace == around else {"name": name, "namespace": namespace}
    if named.aliases:
        # With a dot in front, Avro does not add the type's own namespace to an alias.
        head["aliases"] = [f".{alias}" if namespace and "." not in alias else alias for alias in named.aliases]
    if named.kind == "fixed":
        return {"type": "fixed", **head, "size": named.size, **_logical_attributes(named.logical)}
    if named.kind == "enum":
        return {"type": "enum", **head, "symbols": named.symbols, **named.extra}
    fields = []
    for column in named.fields:
        document = {"name": column.name, "type": _document(column.type, schema, defined, namespace)}
        if column.default is not NO_DEFAULT:
            document["default"] = column.default
        if column.aliases:
            document["aliases"] = column.aliases
        fields.append({**document, **column.extra})
    return {"type": "record", **head, **named.extra, "fields": fields}


def _logical_attributes(type_: Primitive) -> dict[str, Any]:
    if type_.logical == "decimal":
        return {"logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    return {} if type_.logical is None else {"logicalType": type_.logical}


def type_text(type_: Type, schema: AvroSchema) -> str:
    """Describe a type for messages: ``long``, ``decimal(9,2)``, ``array of record Address``, ``string or null``."""
    match type_:
        case Primitive(logical="decimal"):
            return f"decimal({type_.precision},{type_.scale})"
        case Primitive():
            return type_.logical or type_.name
        case Container():
            return f"{type_.kind} of {type_text(type_.values, schema)}"
        case Union():
            words = [type_text(member, schema) for member in members(type_)]
            return " or ".join([*words, "null"] if nullable(type_) else words)
    named = schema.look_up(type_)
    if named.kind == "record":
        return f"record {short_name(named.name)}"
    if named.kind == "enum":
        shown = named.symbols if len(named.symbols) <= _SHORTEST_LIST else [*named.symbols[:3], "…", named.symbols[-1]]
        return f"enum({', '.join(shown)})"
    return f"fixed({named.size})" if named.logical.logical is None else type_text(named.logical, schema)


def wider(ours: Type, other: Type) -> Primitive | None:
    """Return a type that reads values of both, to which Iceberg can promote the column; None without such a type."""
    if not isinstance(ours, Primitive) or not isinstance(other, Primitive):
        return None
    if "decimal" in (ours.logical, other.logical):
        if (ours.name, ours.logical) != (other.name, other.logical):
            return None
        digits, other_digits = (ours.precision or 0) - ours.scale, (other.precision or 0) - other.scale
        if other.scale <= ours.scale and other_digits <= digits:
            return ours
        return other if other.scale == ours.scale else None
    if ours.name == other.name or ours.name in _READS.get(other.name, ()):
        # A number without a logical type can be read as any logical type.
        plain = None in (ours.logical, other.logical)
        return ours if plain or ours.logical == other.logical or _reads_unit(ours, other) else None
    widens = _WIDENS.get(ours.name) == other.name and ours.logical is None and other.logical is None
    return other if widens else None


def _reads_unit(ours: Primitive, other: Primitive) -> bool:
    """Return whether the decoder converts times in the unit of ``other`` to the unit of ``ours`` without loss."""
    family, _, unit = str(ours.logical).rpartition("-")
    other_family, _, other_unit = str(other.logical).rpartition("-")
    if not family or family != other_family:
        return False
    # Spark stores microseconds even if the schema has milliseconds.
    finest = "micros" if unit == "millis" and family != "time" else unit
    return _UNITS.index(other_unit) <= _UNITS.index(finest)


def require_bounded(schema: AvroSchema) -> None:
    """Refuse a schema with too many columns or levels; takes a bounded time for any schema."""
    for count, _ in enumerate(walk(schema, schema.root), start=1):
        if count > MOST_COLUMNS:
            what = f"the schema describes more than {MOST_COLUMNS:,} columns, including the fields inside columns"
            hint = "refer to named types less often: types that refer to each other several times multiply the columns"
            raise ConfigError(what, hint=hint)


def walk(
    schema: AvroSchema, type_: Type, path: str = "", *, around: frozenset[str] = frozenset(), depth: int = 1
) -> Iterator[tuple[str, Field | None]]:
    """Yield the path and the field of each column, outer columns first; the field is None for a union's member.

    A record inside itself is one column with JSON.
    """
    flat = members(type_)
    depth += len(flat) > 1
    if depth > DEEPEST:
        raise too_deep()
    for at, member in enumerate(flat):
        here = path
        if len(flat) > 1:
            here = f"{path}.member{at}"
            yield here, None
        if isinstance(member, Container):
            yield from walk(schema, member.values, f"{here}.{member.step}", around=around, depth=depth + 1)
        elif isinstance(member, Ref) and (named := schema.look_up(member)).name not in around:
            for field in named.fields:
                place = child_path(here, field.name)
                yield place, field
                yield from walk(schema, field.type, place, around=around | {named.name}, depth=depth + 1)


def child_path(path: str, name: str) -> str:
    """Return the path of a field inside the record at ``path``, which is empty for the outermost record."""
    return f"{path}.{name}" if path else name


def too_deep() -> ConfigError:
    hint = "replace the nested levels by a recursive record, which becomes one column with JSON"
    return ConfigError(f"the schema is nested deeper than {DEEPEST} levels", hint=hint)
