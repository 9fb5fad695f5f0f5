"""Reads Avro schemas as others have registered them: every mistake in one is an error with words, never a traceback.

As lenient as the decoder is (``io.lakefeed.decode.AvroTypes``): names may be odd, a logical type that does not fit its
type means nothing, and a default that is no value of its field is none.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.records.schema.avro import (
    DEEPEST,
    LOGICAL,
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    AvroSchema,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Ref,
    Type,
    Union,
    full_name,
    require_bounded,
    short_name,
    too_deep,
    union,
)

_REAL = (Primitive("float"), Primitive("double"))
_NUMBER = re.compile(r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)", re.ASCII)
_DIGITS = 38
"""Of a decimal, as Spark and Iceberg have them."""


def parse(text: str, *, prefix: str = "") -> AvroSchema:
    """Reads an Avro schema of a record.

    Args:
        text: JSON.
        prefix: put before each key, so that the types of two schemas can stand in one mapping.

    Raises:
        ConfigError: it is no Avro schema, its outermost type is not a record, or it is too large (``schema.limits``).
    """
    schema = parse_any(text, prefix=prefix)
    if not isinstance(schema.root, Ref) or not isinstance(schema.named(schema.root), Record):
        raise ConfigError(
            "the Avro schema is not that of a record, so it has no columns",
            where=_clipped(text),
            hint='give a schema with "type": "record"',
        )
    return schema


def parse_any(text: str, *, prefix: str = "") -> AvroSchema:
    """Reads an Avro schema of any type; otherwise as ``parse``."""
    return _parsed(text, prefix, alone=True)


def _parsed(text: str, prefix: str, *, alone: bool) -> AvroSchema:
    try:
        schema = _Parser(prefix, alone=alone).schema(json.loads(text))
        require_bounded(schema)
    except ConfigError as error:
        raise ConfigError(error.what, where=_clipped(text), hint=error.hint) from None
    except RecursionError:
        raise ConfigError(too_deep().what, where=_clipped(text), hint=too_deep().hint) from None
    except ValueError as error:
        raise ConfigError(f"not an Avro schema: {error}", where=_clipped(text)) from None
    return schema


def parse_part(text: str) -> None:
    """Checks a schema that may use types of others, which it refers to; errors are those of ``parse_any``."""
    _parsed(text, "", alone=False)


def require_usable(text: str) -> None:
    """Checks a schema that a table is to be made of: also that its columns are not the same to Spark.

    Raises:
        ConfigError: it is no Avro schema, it is too large, or names of one record differ in case only.
    """
    for named in parse_any(text).types.values():
        if isinstance(named, Record):
            refuse_same_but_for_case(named, short_name(named.name))


def refuse_same_but_for_case(record: Record, path: str) -> None:
    """Refuses two fields of a record that Spark would take for one.

    Raises:
        SchemaIncompatible: names both.
    """
    seen: dict[str, str] = {}
    for each in record.fields:
        first = seen.setdefault(each.name.lower(), each.name)
        if first != each.name:
            names = [f"{path}.{name}" if path else name for name in (first, each.name)]
            raise SchemaIncompatible(
                f"the fields {names[0]} and {names[1]} differ in case only",
                where=f"record {record.name}",
                hint="Spark takes both for one column: give one of them another name",
            )


class _Parser:
    def __init__(self, prefix: str, *, alone: bool) -> None:
        self._prefix = prefix
        self._alone = alone
        self._types: dict[str, Named] = {}

    def schema(self, document: Any) -> AvroSchema:
        schema = AvroSchema(self._type(document, "", "the schema", 0), self._types)
        for named in self._types.values():
            for field in named.fields if isinstance(named, Record) else ():
                if field.default is not NO_DEFAULT and not _is_value(field.default, field.type, schema):
                    field.default = NO_DEFAULT
        return schema

    def _type(self, document: Any, namespace: str, where: str, depth: int) -> Type:
        if depth > 2 * DEEPEST:  # A union and its member are two levels of text.
            raise too_deep()
        if isinstance(document, str):
            return Primitive(document) if document in PRIMITIVES else self._reference(document, namespace, where)
        if isinstance(document, list):
            return union(_distinct([self._type(each, namespace, where, depth + 1) for each in document], where))
        if not isinstance(document, dict):
            raise ValueError(f"the type of {where} is {_shown(document)}, neither a name nor an object nor a union")
        kind = document.get("type")
        if kind == "array":
            items = _part(document, "items", where)
            return Array(self._type(items, namespace, f"the items of {where}", depth + 1))
        if kind == "map":
            values = _part(document, "values", where)
            return Map(self._type(values, namespace, f"the values of {where}", depth + 1))
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(document, namespace, where, depth)
        if isinstance(kind, str) and kind in PRIMITIVES:
            return _logical(kind, document, where)
        if "type" not in document:
            raise ValueError(f"{where} has no type")
        return self._type(kind, namespace, where, depth + 1)

    def _reference(self, name: str, namespace: str, where: str) -> Ref:
        for full in (full_name(name, namespace), name):
            if self._prefix + full in self._types:
                return Ref(self._prefix + full)
        if not self._alone:
            self._types[self._prefix + name] = Record(name, [])
            return Ref(self._prefix + name)
        raise ValueError(f"the type {name!r} of {where} is used, but defined nowhere before")

    def _named(self, document: Mapping[str, Any], namespace: str, where: str, depth: int) -> Ref:
        kind = document["type"]
        name = _name(document, f"a type of kind {kind} ({where})")
        full = full_name(name, _text(document, "namespace", namespace, where))
        inside = full.rpartition(".")[0]
        aliases = [full_name(alias, inside).removeprefix(".") for alias in _texts(document, "aliases", full)]
        key = self._prefix + full
        if key in self._types:
            raise ValueError(f"the type {full!r} is defined twice")
        if full in PRIMITIVES:
            raise ValueError(f"a type of kind {kind} has the name of a primitive type, {full!r}")
        if kind == "enum":
            symbols = _texts(document, "symbols", full, required=True)
            if len(set(symbols)) < len(symbols):
                raise ValueError(f"the enum {full!r} has a symbol twice")
            self._types[key] = Enum(full, symbols, aliases, _extra(document, "symbols"))
        elif kind == "fixed":
            size = document.get("size")
            if not _is_int(size) or not 0 <= size < 2**31:
                raise ValueError(f"the size of the fixed {full!r} is {_shown(size)}, not a number of bytes")
            self._types[key] = Fixed(full, size, _logical("fixed", document, where), aliases)
        else:
            record = Record(full, [], aliases, _extra(document, "fields"))
            self._types[key] = record  # Before its fields: they may refer to it.
            self._fields(record, _part(document, "fields", f"the record {full!r}"), inside, depth)
        return Ref(key)

    def _fields(self, record: Record, documents: Any, namespace: str, depth: int) -> None:
        if not isinstance(documents, list):
            raise ValueError(f"the fields of the record {record.name!r} are {_shown(documents)}, not a list")
        seen: set[str] = set()
        for each in documents:
            if not isinstance(each, dict):
                raise ValueError(f"a field of the record {record.name!r} is {_shown(each)}, not an object")
            name = _name(each, f"a field of the record {record.name!r}")
            where = f"{record.name}.{name}"
            if name in seen:
                raise ValueError(f"the record {record.name!r} has the field {name!r} twice")
            seen.add(name)
            field = Field(
                name=name,
                type=self._type(_part(each, "type", where), namespace, where, depth + 1),
                default=each.get("default", NO_DEFAULT),
                aliases=_texts(each, "aliases", where),
                extra=_extra(each, "default"),
            )
            if field.type in _REAL and isinstance(field.default, str) and not _is_number(field.default):
                # Avro's own parser makes a number of it, or refuses the schema.
                raise ValueError(f"the default of {where} is {_shown(field.default)}, not a number")
            record.fields.append(field)


def _part(document: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in document:
        raise ValueError(f"{where} has no {key}")
    return document[key]


def _name(document: Mapping[str, Any], where: str) -> str:
    name = _part(document, "name", where)
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of {where} is {_shown(name)}, not a text")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name of {where} is no valid Unicode: {name!r}") from None
    return name


def _text(document: Mapping[str, Any], key: str, otherwise: str, where: str) -> str:
    found = document.get(key, otherwise)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"the {key} of {where} is {_shown(found)}, not a text")
    return found or ""


def _texts(document: Mapping[str, Any], key: str, where: str, *, required: bool = False) -> list[str]:
    found = document.get(key, None if required else [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"the {key} of {where} are {_shown(found)}, not a list of texts")
    return list(found)


def _distinct(found: list[Type], where: str) -> list[Type]:
    kinds: set[str] = set()
    for each in found:
        if isinstance(each, Union):
            raise ValueError(f"a union is a member of the union of {where}")
        kind = each.name if isinstance(each, Primitive) else each.key if isinstance(each, Ref) else type(each).__name__
        if kind in kinds:
            raise ValueError(f"the union of {where} has {kind.lower()} twice")
        kinds.add(kind)
    return found


def _extra(document: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """Attributes that are kept as they are, such as ``doc``."""
    return {key: each for key, each in document.items() if key not in {"name", "namespace", "type", "aliases", *known}}


def _logical(kind: str, document: Mapping[str, Any], where: str) -> Primitive:
    logical = document.get("logicalType")
    if not isinstance(logical, str) or logical not in LOGICAL.get(kind, ()):
        return Primitive(kind)
    if logical != "decimal":
        return Primitive(kind, logical)
    precision, scale = document.get("precision"), document.get("scale", 0)
    if not _is_int(precision) or not _is_int(scale) or precision <= 0 or not 0 <= scale <= precision:
        return Primitive(kind)
    if kind == "fixed" and precision > math.floor(math.log10(2) * (8 * document["size"] - 1)):
        return Primitive(kind)
    if precision > _DIGITS:
        raise ValueError(f"{where} is a decimal of {precision} digits, and no column holds more than {_DIGITS}")
    return Primitive(kind, logical, precision, scale)


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_value(value: Any, type_: Type, schema: AvroSchema) -> bool:
    """Whether a default, as JSON, is a value of the type. Of a union any member will do, as for Avro's own reader."""
    match type_:
        case Primitive():
            return _is_primitive(value, type_.name)
        case Array():
            return isinstance(value, list) and all(_is_value(each, type_.items, schema) for each in value)
        case Map():
            return isinstance(value, dict) and all(_is_value(each, type_.values, schema) for each in value.values())
        case Union():
            return any(_is_value(value, each, schema) for each in type_.members)
    named = schema.named(type_)
    if isinstance(named, Enum):
        return value in named.symbols
    if isinstance(named, Fixed):
        return isinstance(value, str)
    return isinstance(value, dict) and all(
        _is_value(value[each.name], each.type, schema) if each.name in value else each.default is not NO_DEFAULT
        for each in named.fields
    )


def _is_primitive(value: Any, name: str) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return _is_int(value) and -(2**31) <= value < 2**31
        case "long":
            return _is_int(value) and -(2**63) <= value < 2**63
        case "float" | "double":
            return (
                _is_int(value)
                or isinstance(value, float)
                or (isinstance(value, str) and bool(_NUMBER.fullmatch(value)))
            )
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and _NUMBER.fullmatch(value) is not None


def _shown(value: Any) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= 40 else f"{shown[:39]}…"


def _clipped(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
