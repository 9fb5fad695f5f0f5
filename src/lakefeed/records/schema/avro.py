"""Avro schemas as a graph that can be joined: types by full name, references instead of nesting.

Terms and rules: https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from lakefeed.errors import ConfigError

NO_DEFAULT: Final = object()
"""Stands for a field without default; None is the default null."""
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
_SHORTEST_LIST = 5


@dataclass(frozen=True)
class Primitive:
    """A type without parts; ``logical`` only if Avro knows it for this type, others mean nothing to a reader."""

    name: str
    logical: str | None = None
    precision: int | None = None
    scale: int = 0


@dataclass(frozen=True)
class Array:
    items: Type


@dataclass(frozen=True)
class Map:
    values: Type


@dataclass(frozen=True)
class Union:
    members: tuple[Type, ...]


@dataclass(frozen=True)
class Ref:
    """A named type, by its key in ``Schema.types``."""

    key: str


Type = Primitive | Array | Map | Union | Ref
NULL: Final = Primitive("null")


@dataclass
class Field:
    """A record's field. ``absent``: a schema that was joined lacks it (said here only, not written)."""

    name: str
    type: Type
    default: Any = NO_DEFAULT
    aliases: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    absent: bool = field(default=False, compare=False)


@dataclass
class Record:
    name: str
    fields: list[Field]
    aliases: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Enum:
    name: str
    symbols: list[str]
    aliases: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Fixed:
    name: str
    size: int
    logical: Primitive
    aliases: list[str] = field(default_factory=list)


Named = Record | Enum | Fixed


@dataclass
class AvroSchema:
    """A schema: its outermost type, and the named types that it uses."""

    root: Type
    types: dict[str, Named]

    def named(self, ref: Ref) -> Named:
        """What a reference means."""
        return self.types[ref.key]


def full_name(name: str, namespace: str) -> str:
    """A name in the namespace around it, unless it says its own."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def union(members: list[Type]) -> Type:
    """The union; int beside long alone is long, and float beside double is double, as Spark reads them too."""
    flat = tuple(members)
    for narrow, wide in (("int", "long"), ("float", "double")):
        if {each for each in flat if each != NULL} == {Primitive(narrow), Primitive(wide)}:
            flat = tuple(each for each in flat if each != Primitive(narrow))
    return flat[0] if len(flat) == 1 else Union(flat)


def members(type_: Type) -> tuple[Type, ...]:
    """The members of a union without null; a type that is no union is its own only member."""
    flat = type_.members if isinstance(type_, Union) else (type_,)
    return tuple(each for each in flat if each != NULL)


def nullable(type_: Type) -> bool:
    """Whether null is a value of the type."""
    return type_ == NULL or (isinstance(type_, Union) and NULL in type_.members)


def with_null(type_: Type, *, first: bool = True) -> Type:
    """The type with null as one more value, as the first member of the union or the last."""
    rest = members(type_)
    if not rest:
        return NULL
    return Union((NULL, *rest) if first else (*rest, NULL))


def short_name(full: str) -> str:
    """A full name without its namespace."""
    return full.rpartition(".")[2]


def written(schema: AvroSchema) -> str:
    """The schema as JSON, each named type defined where it is used first."""
    return json.dumps(_document(schema.root, schema, set(), ""), ensure_ascii=False)


def _document(type_: Type, schema: AvroSchema, defined: set[str], around: str) -> Any:
    match type_:
        case Primitive(logical=None):
            return type_.name
        case Primitive():
            return {"type": type_.name, **_attributes(type_)}
        case Array():
            return {"type": "array", "items": _document(type_.items, schema, defined, around)}
        case Map():
            return {"type": "map", "values": _document(type_.values, schema, defined, around)}
        case Union():
            return [_document(each, schema, defined, around) for each in type_.members]
    named = schema.named(type_)
    if named.name in defined:
        return named.name
    defined.add(named.name)
    namespace, _, name = named.name.rpartition(".")
    head: dict[str, Any] = {"name": name} if namespace == around else {"name": name, "namespace": namespace}
    if named.aliases:
        # An alias without a dot would be one of the type's own namespace.
        head["aliases"] = [f".{each}" if namespace and "." not in each else each for each in named.aliases]
    if isinstance(named, Fixed):
        return {"type": "fixed", **head, "size": named.size, **_attributes(named.logical)}
    if isinstance(named, Enum):
        return {"type": "enum", **head, "symbols": named.symbols, **named.extra}
    fields = []
    for each in named.fields:
        document = {"name": each.name, "type": _document(each.type, schema, defined, namespace)}
        if each.default is not NO_DEFAULT:
            document["default"] = each.default
        if each.aliases:
            document["aliases"] = each.aliases
        fields.append({**document, **each.extra})
    return {"type": "record", **head, **named.extra, "fields": fields}


def _attributes(logical: Primitive) -> dict[str, Any]:
    if logical.logical is None:
        return {}
    if logical.logical == "decimal":
        return {"logicalType": "decimal", "precision": logical.precision, "scale": logical.scale}
    return {"logicalType": logical.logical}


def described(type_: Type, schema: AvroSchema) -> str:
    """The type in a few words: ``long``, ``decimal(9,2)``, ``array of Address``, ``string or null``."""
    match type_:
        case Primitive(logical=None):
            return type_.name
        case Primitive(logical="decimal"):
            return f"decimal({type_.precision},{type_.scale})"
        case Primitive():
            return str(type_.logical)
        case Array():
            return f"array of {described(type_.items, schema)}"
        case Map():
            return f"map of {described(type_.values, schema)}"
        case Union():
            words = [described(each, schema) for each in members(type_)]
            return " or ".join([*words, "null"] if nullable(type_) else words)
    named = schema.named(type_)
    if isinstance(named, Record):
        return f"record {short_name(named.name)}"
    if isinstance(named, Enum):
        shown = named.symbols if len(named.symbols) <= _SHORTEST_LIST else [*named.symbols[:3], "…", named.symbols[-1]]
        return f"enum({', '.join(shown)})"
    if named.logical.logical is not None:
        return described(named.logical, schema)
    return f"fixed({named.size})"


# What Avro's resolution reads into a wider type, and what of it a table's column can become.
_READS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_WIDENS = {"int": "long", "float": "double"}
_UNITS = ("millis", "micros", "nanos")


def wider(ours: Primitive, other: Primitive) -> Primitive | None:
    """The type that reads both and that our column can become; None if there is none."""
    if "decimal" in (ours.logical, other.logical):
        return _wider_decimal(ours, other) if ours.logical == other.logical else None
    if ours.name == other.name or ours.name in _READS.get(other.name, ()):
        # A plain number is taken for what the other side says that it is.
        plain = None in (ours.logical, other.logical)
        return ours if plain or ours.logical == other.logical or _reads_unit(ours, other) else None
    if _WIDENS.get(ours.name) == other.name and ours.logical is None and other.logical is None:
        return other
    return None


def _wider_decimal(ours: Primitive, other: Primitive) -> Primitive | None:
    if ours.name != other.name:
        return None
    left = (ours.precision or 0) - ours.scale, (other.precision or 0) - other.scale
    if other.scale <= ours.scale and left[1] <= left[0]:
        return ours
    return other if other.scale == ours.scale else None


def _reads_unit(ours: Primitive, other: Primitive) -> bool:
    """Whether a moment of another unit is one of ours: the decoder converts it where nothing is lost."""
    family, _, unit = str(ours.logical).rpartition("-")
    their_family, _, their_unit = str(other.logical).rpartition("-")
    if not family or family != their_family:
        return False
    # Spark holds milliseconds as microseconds.
    finest = "micros" if unit == "millis" and family != "time" else unit
    return _UNITS.index(their_unit) <= _UNITS.index(finest)


MOST_COLUMNS = 10_000
"""Columns and fields inside them, at all levels."""
DEEPEST = 100
"""Levels of records, arrays, maps and unions inside each other."""


def require_bounded(schema: AvroSchema) -> None:
    """Refuses a schema of too many columns or levels, in a time that the limits bound.

    Raises:
        ConfigError: says which limit.
    """
    _Count(schema).type(schema.root, frozenset(), 1)


class _Count:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._columns = 0

    def type(self, type_: Type, around: frozenset[str], depth: int) -> None:
        if depth > DEEPEST:
            raise too_deep()
        match type_:
            case Array():
                self.type(type_.items, around, depth + 1)
            case Map():
                self.type(type_.values, around, depth + 1)
            case Union():
                flat = members(type_)
                for each in flat:
                    if len(flat) > 1:
                        self._add()
                    self.type(each, around, depth + (len(flat) > 1))
            case Ref():
                named = self._schema.named(type_)
                # A record inside itself is one column of JSON.
                if isinstance(named, Record) and named.name not in around:
                    inside = around | {named.name}
                    for field in named.fields:
                        self._add()
                        self.type(field.type, inside, depth + 1)

    def _add(self) -> None:
        self._columns += 1
        if self._columns > MOST_COLUMNS:
            raise ConfigError(
                f"the schema means more than {MOST_COLUMNS:,} columns, fields inside columns counted",
                hint="named types that use each other several times multiply; leave some of them out",
            )


def too_deep() -> ConfigError:
    """The error for a schema of too many levels."""
    return ConfigError(
        f"the schema has more than {DEEPEST} levels inside each other",
        hint="write a record that contains itself for what may be nested without end",
    )
