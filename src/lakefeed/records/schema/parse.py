"""Reads Avro schemas. Any client may have registered them, so every mistake in a schema is a ConfigError.

Like the decoder (``io.lakefeed.decode.AvroTypes``), ``parse`` accepts names that Avro does not allow, and ignores
logical types and defaults that do not fit their type.
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
    AvroSchema,
    Container,
    Field,
    Named,
    Primitive,
    Ref,
    Type,
    Union,
    child_path,
    require_bounded,
    short_name,
    too_deep,
    type_kind,
    union,
)

_NUMBER = re.compile(r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)", re.ASCII)
_DIGITS = 38
"""The most digits of a decimal in Spark and Iceberg."""
_RANGES = {"int": range(-(2**31), 2**31), "long": range(-(2**63), 2**63)}


def parse(text: str, *, prefix: str = "") -> AvroSchema:
    """Read an Avro record schema (JSON); raise ConfigError for other schemas, and for a schema that is too large.

    The keys of ``AvroSchema.types`` begin with ``prefix``, so that one mapping can have the types of two schemas.
    """
    schema = parse_any(text, prefix=prefix)
    if not isinstance(schema.root, Ref) or schema.look_up(schema.root).kind != "record":
        what = "the Avro schema describes no record, so it has no columns"
        raise ConfigError(what, where=_clip(text, 80), hint='give a schema with "type": "record"')
    return schema


def parse_any(text: str, *, prefix: str = "", is_part: bool = False) -> AvroSchema:
    """Read an Avro schema of any type; with ``is_part``, it may use types that it does not define itself."""
    try:
        schema = _Parser(prefix, is_part=is_part).schema(json.loads(text))
        require_bounded(schema)
    except ConfigError as error:
        raise ConfigError(error.what, where=_clip(text, 80), hint=error.hint) from None
    except RecursionError:
        raise ConfigError(too_deep().what, where=_clip(text, 80), hint=too_deep().hint) from None
    except ValueError as error:
        hint = "correct the schema and register it again, or correct it in its file"
        raise ConfigError(f"not an Avro schema: {error}", where=_clip(text, 80), hint=hint) from None
    return schema


def require_usable(text: str) -> None:
    """Refuse a schema that cannot become a table, such as a record with two fields that differ only in case."""
    for named in parse_any(text).types.values():
        refuse_same_but_for_case(named, short_name(named.name))


def refuse_same_but_for_case(record: Named, path: str) -> None:
    """Refuse two fields of a record whose names differ only in case, because Spark treats them as one."""
    spellings: dict[str, str] = {}
    for field in record.fields:
        first = spellings.setdefault(field.name.lower(), field.name)
        if first != field.name:
            what = f"the fields {child_path(path, first)} and {child_path(path, field.name)} differ in case only"
            hint = "give one of them another name: Spark treats both as one column"
            raise SchemaIncompatible(what, where=f"record {record.name}", hint=hint)


class _Parser:
    def __init__(self, prefix: str, *, is_part: bool) -> None:
        self._prefix = prefix
        self._is_part = is_part
        self._types: dict[str, Named] = {}

    def schema(self, document: Any) -> AvroSchema:
        schema = AvroSchema(self._type(document, "", "the schema", 0), self._types)
        for named in self._types.values():
            for field in named.fields:
                if field.default is not NO_DEFAULT and not _is_value(field.default, field.type, schema):
                    field.default = NO_DEFAULT
        return schema

    def _type(self, document: Any, namespace: str, where: str, depth: int) -> Type:
        if depth > 2 * DEEPEST:  # A union and its member are one level of the schema, though two levels in the JSON.
            raise too_deep()
        if isinstance(document, str):
            return Primitive(document) if document in PRIMITIVES else self._reference(document, namespace, where)
        if isinstance(document, list):
            return union(_distinct([self._type(member, namespace, where, depth + 1) for member in document], where))
        if not isinstance(document, dict):
            raise ValueError(f"the type of {where} is {_show(document)}, not a name, an object or a union")
        kind = _part(document, "type", where)
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            values = _part(document, part, where)
            return Container(kind, self._type(values, namespace, f"the {part} of {where}", depth + 1))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(document, namespace, where, depth)
        if isinstance(kind, str) and kind in PRIMITIVES:
            return _logical_type(kind, document, where)
        return self._type(kind, namespace, where, depth + 1)

    def _reference(self, name: str, namespace: str, where: str) -> Ref:
        for full in (full_name(name, namespace), name):
            if self._prefix + full in self._types:
                return Ref(self._prefix + full)
        if not self._is_part:
            raise ValueError(f"the type {name!r} of {where} is not defined before its use")
        self._types[self._prefix + name] = Named("record", name)
        return Ref(self._prefix + name)

    def _define(self, document: Mapping[str, Any], namespace: str, where: str, depth: int) -> Ref:
        kind = document["type"]
        name = _name(document, f"a type of kind {kind} ({where})")
        own = document.get("namespace", namespace)
        if own is not None and not isinstance(own, str):
            raise ValueError(f"the namespace of {where} is {_show(own)}, not a text")
        full = full_name(name, own or "")
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
            extra = _extra(document, "symbols")
            self._types[key] = Named("enum", full, aliases, extra, symbols=symbols)
        elif kind == "fixed":
            size = document.get("size")
            if not _is_int(size) or not 0 <= size < 2**31:
                raise ValueError(f"the size of the fixed {full!r} is {_show(size)}, not a number of bytes")
            logical = _logical_type("fixed", document, where)
            self._types[key] = Named("fixed", full, aliases, size=size, logical=logical)
        else:
            record = Named("record", full, aliases, _extra(document, "fields"))
            self._types[key] = record  # Add the record before its fields, which may refer to it.
            self._add_fields(record, _part(document, "fields", f"the record {full!r}"), inside, depth)
        return Ref(key)

    def _add_fields(self, record: Named, documents: Any, namespace: str, depth: int) -> None:
        if not isinstance(documents, list):
            raise ValueError(f"the fields of the record {record.name!r} are {_show(documents)}, not a list")
        names: set[str] = set()
        for document in documents:
            if not isinstance(document, dict):
                raise ValueError(f"a field of the record {record.name!r} is {_show(document)}, not an object")
            name = _name(document, f"a field of the record {record.name!r}")
            where = f"{record.name}.{name}"
            if name in names:
                raise ValueError(f"the record {record.name!r} has the field {name!r} twice")
            names.add(name)
            type_ = self._type(_part(document, "type", where), namespace, where, depth + 1)
            default = document.get("default", NO_DEFAULT)
            is_real = type_ in (Primitive("float"), Primitive("double"))
            if is_real and isinstance(default, str) and not _NUMBER.fullmatch(default):
                # Like Avro's own parser, refuse this text; Avro converts other texts, such as "NaN", to numbers.
                raise ValueError(f"the default of {where} is {_show(default)}, not a number")
            aliases = _texts(document, "aliases", where)
            record.fields.append(Field(name, type_, default, aliases, _extra(document, "default")))


def full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _part(document: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in document:
        raise ValueError(f"{where} has no {key}")
    return document[key]


def _name(document: Mapping[str, Any], where: str) -> str:
    name = _part(document, "name", where)
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of {where} is {_show(name)}, not a text")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name of {where} is not valid Unicode: {name!r}") from None
    return name


def _texts(document: Mapping[str, Any], key: str, where: str, *, required: bool = False) -> list[str]:
    texts = document.get(key, None if required else [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"the {key} of {where} are {_show(texts)}, not a list of texts")
    return texts


def _distinct(types: list[Type], where: str) -> list[Type]:
    kinds: set[tuple[type[Type], str]] = set()
    for type_ in types:
        if isinstance(type_, Union):
            raise ValueError(f"a union is a member of the union of {where}")
        kind = (type(type_), type_kind(type_))
        if kind in kinds:
            raise ValueError(f"the union of {where} has {kind[1].lower()} twice")
        kinds.add(kind)
    return types


def _extra(document: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """Return the further attributes, such as ``doc``, which a merge copies unchanged."""
    known = (*known, "name", "namespace", "type", "aliases")
    return {key: value for key, value in document.items() if key not in known}


def _logical_type(kind: str, document: Mapping[str, Any], where: str) -> Primitive:
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
        raise ValueError(f"{where} is a decimal of {precision} digits, but a column has at most {_DIGITS}")
    return Primitive(kind, logical, precision, scale)


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_value(value: Any, type_: Type, schema: AvroSchema) -> bool:
    """Return whether a default in JSON is a value of the type, or of any member of a union, as Avro's reader allows."""
    match type_:
        case Primitive(name="null"):
            return value is None
        case Primitive(name="boolean"):
            return isinstance(value, bool)
        case Primitive(name="int" | "long"):
            return _is_int(value) and value in _RANGES[type_.name]
        case Primitive(name="float" | "double"):
            if isinstance(value, str):
                return bool(_NUMBER.fullmatch(value))
            return _is_int(value) or isinstance(value, float)
        case Primitive():
            return isinstance(value, str)
        case Container(kind="array"):
            return isinstance(value, list) and all(_is_value(item, type_.values, schema) for item in value)
        case Container():
            return isinstance(value, dict) and all(_is_value(item, type_.values, schema) for item in value.values())
        case Union():
            return any(_is_value(value, member, schema) for member in type_.members)
    named = schema.look_up(type_)
    if named.kind == "enum":
        return value in named.symbols
    if named.kind == "fixed":
        return isinstance(value, str)
    return isinstance(value, dict) and all(
        _is_value(value[field.name], field.type, schema) if field.name in value else field.default is not NO_DEFAULT
        for field in named.fields
    )


def _show(value: Any) -> str:
    return _clip(json.dumps(value), 40)


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
