"""Translates a JSON Schema of drafts 4 to 2020-12 to the Avro schema of the rows.

A value without a fixed type becomes text with its JSON: a value of several types, an object without known fields, or an
object whose schema contains itself.

A place is a position in the schema that describes one value. It can have several schemas (its parts), because ``$ref``
and ``allOf`` add some; a value has to meet all of them. ``SchemaDocuments`` has already checked that all keywords have
values of the right types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from lakefeed.errors import ConfigError
from lakefeed.records.decode.json_schema_document import TYPES, Pointer, Resolver, SchemaDocuments, too_deep
from lakefeed.records.schema.avro import ANY, DEEPEST, MOST_COLUMNS

NAME = "lakefeed.json.name"
"""The attribute of an Avro field that has the JSON property's name, if the field's name differs."""

_FORMATS = {
    "date-time": {"type": "long", "logicalType": "timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
}
_SINGLE: dict[str, Any] = {"integer": "long", "number": "double", "boolean": "boolean"}
_CHOICES = ("oneOf", "anyOf")
_MOST_STEPS = 5 * MOST_COLUMNS
_LONGEST_RECORD_NAME = 200
# These keywords do not restrict values: a schema that has no other keyword allows all types.
_SILENT = {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}

_Part: TypeAlias = tuple[Any, Resolver]
"""A schema and the resolver of its references."""


class _Recursive(Exception):
    """The schema at a place contains itself."""


class _Made(NamedTuple):
    """The Avro type of the values at a place."""

    type: Any
    nullable: bool = False
    is_any: bool = False
    """Whether the field gets the attribute ``ANY``."""

    @property
    def schema(self) -> Any:
        """The Avro type; a union with null if values may be null."""
        return ["null", self.type] if self.nullable and self.type != "null" else self.type


_TEXT = _Made("string", is_any=True)


@dataclass(frozen=True, kw_only=True)
class _Place:
    parts: tuple[_Part, ...]
    name: str
    path: Pointer
    around: frozenset[tuple[int, bool]] = frozenset()

    def having(self, parts: Iterable[_Part]) -> _Place:
        return replace(self, parts=tuple(parts))

    def below(self, parts: Iterable[_Part], *steps: str, name: str | None = None) -> _Place:
        return replace(self, parts=tuple(parts), path=self.path.below(*steps), name=name or self.name)


def avro_schema(text: str, references: Mapping[str, str] | None = None, *, name: str = "Value") -> str:
    """Translate a JSON Schema of objects to an Avro record schema (JSON).

    A field is nullable with the default null, unless the property is required and cannot be null. The field has the
    property's name, even if Avro does not allow the name; only the empty name becomes ``_``.

    Raises:
        ConfigError: this is not a JSON Schema of an object, a ``$ref`` has no target, or there are over 10,000 columns.
    """
    documents = SchemaDocuments(text, references or {})
    title = documents.root.get("title")
    record = re.sub(r"\W+", "_", title if isinstance(title, str) else name, flags=re.ASCII).strip("_") or "Value"
    root = _Place(
        parts=((documents.root, documents.resolver),),
        name=f"_{record}" if record[0].isdigit() else record,
        path=Pointer(),
    )
    try:
        made = _Translation(documents).type(root).type
        if not isinstance(made, dict) or made.get("type") != "record":
            made = _Translation(documents).several(root).type
    except RecursionError:
        raise too_deep() from None
    if not isinstance(made, dict) or made.get("type") != "record":
        what = "The JSON Schema does not describe an object with properties, so it has no columns"
        hint = 'decode as json with schema_ddl, or give the schema "type": "object" and properties'
        raise ConfigError(what, hint=hint)
    return json.dumps(made)


class _Translation:
    def __init__(self, documents: SchemaDocuments) -> None:
        self._documents = documents
        self._names: dict[str, int] = {}
        self._columns = 0
        self._steps = 0

    def type(self, place: _Place) -> _Made:
        if place.path.level > DEEPEST:
            raise too_deep()
        try:
            flat, around = self._flat(place)
        except _Recursive:
            return _TEXT
        if any(schema is False for schema, _ in flat):
            return _TEXT
        place = replace(place, parts=tuple(each for each in flat if isinstance(each[0], dict)), around=around)
        words = [] if _having(place.parts, "properties") else [each for each in _CHOICES if _having(place.parts, each)]
        if not words:
            return self._single(place)
        rest = [({key: value for key, value in part.items() if key != words[0]}, at) for part, at in place.parts]
        base = [each for each in rest if each[0]]
        (options, resolver), *_ = _having(place.parts, words[0])
        return self._one_of(place.having((*base, (option, resolver))) for option in options if option is not False)

    def several(self, root: _Place) -> _Made:
        """Return a record with the properties of all alternatives of the root; text if one is not an object."""
        with suppress(_Recursive):
            if self._are_objects(root):
                parts, around = self._flat(root)
                parts = [each for each in parts if isinstance(each[0], dict)]
                return self._object(replace(root.having(parts), around=around), of_choices=True)
        return _TEXT

    def _are_objects(self, place: _Place) -> bool:
        flat, around = self._flat(place)
        parts = [each for each in flat if isinstance(each[0], dict)]
        if _kinds([schema for schema, _ in parts]) == ({"object"}, False):
            return True
        options = [option for part in parts for options in _alternatives(part) for option in options]
        inner = (replace(place.having((option,)), around=around) for option in options)
        return bool(options) and all(map(self._are_objects, inner))

    def _flat(self, place: _Place) -> tuple[list[_Part], frozenset[tuple[int, bool]]]:
        """Resolve a place's references and ``allOf``; return its parts, and the references that lead to them."""
        flat: list[_Part] = []
        around = place.around
        left = [(part, place.around, False, False) for part in reversed(place.parts)]
        while left:
            self._count(place)
            (schema, resolver), known, in_all_of, done = left.pop()
            if done or not isinstance(schema, dict):
                flat.append((schema, resolver))
                continue
            resolver = self._documents.inside(schema, resolver)
            more = []
            for target in self._documents.targets(schema, resolver, place.path):
                key = (id(target[0]), in_all_of)
                if isinstance(target[0], dict):
                    if key in known or (in_all_of and (key[0], False) in known):
                        raise _Recursive
                    around |= {key}
                more.append((target, known | {key}, in_all_of, False))
            if not (more and self._documents.is_legacy(schema)):
                more += [((each, resolver), known, True, False) for each in schema.get("allOf", ())]
                rest = {key: value for key, value in schema.items() if key not in _FLATTENED}
                if rest.keys() - _SILENT:
                    more.append(((rest, resolver), known, in_all_of, True))
            left += reversed(more)
        return flat, around

    def _count(self, place: _Place) -> None:
        self._steps += 1
        if self._columns > MOST_COLUMNS or self._steps > _MOST_STEPS:
            what = f"The JSON Schema has more than {MOST_COLUMNS:,} columns, including those behind its references"
            hint = "replace repeated schemas by an object without properties: it becomes a column of JSON text"
            raise ConfigError(what, where=str(place.path), hint=hint)

    def _one_of(self, places: Iterable[_Place]) -> _Made:
        """Return the type that all places have in common; text if their types differ."""
        options = [self.type(place) for place in places]
        types = [made._replace(nullable=False) for made in options if made.type != "null"]
        if not types:
            return _Made("null", nullable=True)
        same = all(made == types[0] for made in types)
        return (types[0] if same else _TEXT)._replace(nullable=any(made.nullable for made in options))

    def _single(self, place: _Place) -> _Made:
        kinds, nullable = _kinds([schema for schema, _ in place.parts])
        if kinds is None or len(kinds) > 1:
            return _TEXT._replace(nullable=nullable)
        if not kinds:
            return _Made("null", nullable=True)
        [kind] = kinds
        if kind in ("object", "array"):
            return (self._object(place) if kind == "object" else self._array(place))._replace(nullable=nullable)
        return _Made(_string(place.parts) if kind == "string" else _SINGLE[kind], nullable)

    def _object(self, place: _Place, *, of_choices: bool = False) -> _Made:
        properties = _properties(place.parts)
        if not properties and not of_choices:
            values = [
                each for each in _having(place.parts, "additionalProperties") if isinstance(each[0], dict) and each[0]
            ]
            if not values:
                return _TEXT
            made = self.type(place.below(values, "additionalProperties"))
            return _Made({"type": "map", "values": made.schema}, is_any=made.is_any)
        own = self._unused(place.name)
        required = {name for names, _ in _having(place.parts, "required") for name in names}
        fields: dict[str, dict[str, Any]] = {}
        for key, parts in properties.items():
            made = self.type(place.below(parts, "properties", key, name=f"{own}_{_plain(key)}"))
            self._field(fields, place, key, made if key in required else made._replace(nullable=True))
        sometimes = self._sometimes(place)
        if not properties and not sometimes:
            return _TEXT
        for key, described in sometimes.items():
            if key not in properties:
                inner = place.below((), "properties", key, name=f"{own}_{_plain(key)}")
                made = self._one_of(inner.having((part,)) for part in described) if described else _TEXT
                self._field(fields, place, key, made._replace(nullable=True))
        return _Made({"type": "record", "name": own, "fields": list(fields.values())})

    def _sometimes(self, place: _Place) -> dict[str, list[_Part] | None]:
        """Return the properties that choices and conditions add to an object; None for a property of any type.

        If only some choices describe a property, it can have any type in objects that meet the remaining choices,
        unless these forbid ``additionalProperties``.
        """
        added: dict[str, list[_Part] | None] = {}
        visited: set[int] = set()
        left = [(choice, False) for part in place.parts for choice in _choices_of(part)]
        while left:
            options, free = left.pop(0)
            described: list[dict[str, list[_Part]]] = []
            closed: list[bool] = []
            for option in options:
                parts = []
                if isinstance(option[0], dict) and id(option[0]) not in visited:
                    visited.add(id(option[0]))
                    with suppress(_Recursive):
                        parts = [each for each in self._flat(place.having((option,)))[0] if isinstance(each[0], dict)]
                described.append(_properties(parts))
                none = any(each is False for each, _ in _having(parts, "additionalProperties"))
                closed.append(none and not _having(parts, "patternProperties"))
                left += [(choice, True) for part in parts for choice in _choices_of(part)]
            for key in dict.fromkeys(key for each in described for key in each):
                known = not free and all(key in each or none for each, none in zip(described, closed, strict=True))
                added.setdefault(key, [part for each in described for part in each.get(key, ())] if known else None)
        return added

    def _field(self, fields: dict[str, dict[str, Any]], place: _Place, key: str, made: _Made) -> None:
        self._columns += 1
        self._count(place)
        name = key or "_"
        if name in fields:
            what = "The JSON Schema has a property '_' and one with the empty name, whose column is also called '_'"
            raise ConfigError(what, where=str(place.path), hint="rename one of them, or decode as json with schema_ddl")
        column: dict[str, Any] = {"name": name, "type": made.schema}
        if made.nullable:
            column["default"] = None
        if made.is_any:
            column[ANY] = True
        if name != key:
            column[NAME] = key
        fields[name] = column

    def _array(self, place: _Place) -> _Made:
        items = [each for each in _having(place.parts, "items") if each[0] is not True and each[0] != {}]
        if not items or not all(isinstance(each, dict) for each, _ in items) or _having(place.parts, "prefixItems"):
            return _TEXT
        made = self.type(place.below(items, "items"))
        return _Made({"type": "array", "items": made.schema}, is_any=made.is_any)

    def _unused(self, name: str) -> str:
        """Return a name that no other record has: every place has its own record, and Avro defines a name only once."""
        name = name[:_LONGEST_RECORD_NAME]
        chosen = name
        while chosen in self._names:
            self._names[name] += 1
            chosen = f"{name}_{self._names[name]}"
        self._names[chosen] = 1
        return chosen


_FLATTENED = ("allOf", "$ref", "$dynamicRef", "$recursiveRef", "$id", "id", "definitions", "$defs")


def _having(parts: Iterable[_Part], word: str) -> list[_Part]:
    return [(schema[word], resolver) for schema, resolver in parts if word in schema]


def _properties(parts: Iterable[_Part]) -> dict[str, list[_Part]]:
    merged: dict[str, list[_Part]] = {}
    for properties, resolver in _having(parts, "properties"):
        for key, value in properties.items():
            merged.setdefault(key, []).append((value, resolver))
    return merged


def _choices_of(part: _Part) -> Iterator[list[_Part]]:
    """Yield the schemas of each choice or condition in a part; a value meets at least one of a list."""
    schema, resolver = part
    yield from _alternatives(part)
    several = [[schema.get("then", {}), schema.get("else", {})]] if "then" in schema or "else" in schema else []
    several += [[each, {}] for word in ("dependentSchemas", "dependencies") for each in schema.get(word, {}).values()]
    yield from ([(option, resolver) for option in options] for options in several)


def _alternatives(part: _Part) -> Iterator[list[_Part]]:
    schema, resolver = part
    yield from ([(option, resolver) for option in schema[word]] for word in _CHOICES if word in schema)


def _kinds(schemas: Iterable[Mapping[str, Any]]) -> tuple[set[str] | None, bool]:
    """Return the types (None for any) that all schemas allow, without null, and whether they allow null."""
    schemas = list(schemas)
    allowed = [kinds for kinds in map(_allowed, schemas) if kinds is not None]
    if not allowed:
        if any("properties" in schema for schema in schemas):
            return {"object"}, False
        return ({"array"}, False) if any("items" in schema for schema in schemas) else (None, True)
    # If the schemas contradict each other, the user probably meant that the last schema overrides the others.
    kinds = set.intersection(*allowed) or set(allowed[-1])
    if "number" in kinds:
        kinds.discard("integer")
    return kinds - {"null"}, "null" in kinds


def _allowed(schema: Mapping[str, Any]) -> set[str] | None:
    """Return the types that a schema allows, None for any type; if it allows number, it also allows integer."""
    kinds: set[str] = set(TYPES)
    if "type" in schema:
        kinds &= {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
        kinds |= {"integer"} if "number" in kinds else set()
        kinds = kinds if kinds or schema["type"] not in ("any", ["any"]) else set(TYPES)
    for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
        if values is not None:
            own = {_kind_of(value) for value in values}
            kinds &= own | ({"integer"} if "number" in own else set())
            kinds |= {"number"} if "number" in own and "integer" in kinds else set()
    if kinds == set(TYPES):
        return None
    # Schemas in registries also use nullable, a keyword of OpenAPI.
    return kinds | {"null"} if schema.get("nullable") is True else kinds


def _kind_of(value: Any) -> str:
    for kind, types in (("null", type(None)), ("boolean", bool), ("integer", int), ("number", float), ("string", str)):
        if isinstance(value, types):
            return kind
    return "array" if isinstance(value, list) else "object"


def _string(parts: Iterable[_Part]) -> Any:
    parts = list(parts)
    formats = [str(each) for each, _ in _having(parts, "format")]
    if any(each == "base64" for each, _ in _having(parts, "contentEncoding")) or {"byte", "base64"} & set(formats):
        return "bytes"
    return next((_FORMATS[each] for each in formats if each in _FORMATS), "string")


def _plain(key: str) -> str:
    return re.sub(r"\W", "_", key[:_LONGEST_RECORD_NAME], flags=re.ASCII)
