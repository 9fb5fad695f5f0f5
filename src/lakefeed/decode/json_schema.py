"""JSON Schema as an Avro schema: what its objects look like as rows.

Drafts 4 to 2020-12, as far as they say which fields there are and of what type. What no column can hold (a choice
of several types, objects of no known fields, schemas inside themselves) is text: the JSON itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lakefeed.errors import ConfigError

ANY = "lakefeed.json"
"""Property of an Avro field that takes any JSON as text (``io.lakefeed.decode.JsonValue``)."""

_TEXT = {"type": "string", ANY: True}
_FORMATS = {
    "date-time": {"type": "long", "logicalType": "timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
}
_SINGLE: dict[str, Any] = {"integer": "long", "number": "double", "boolean": "boolean", "null": "null"}
_ANYTHING = "anything"
_DEEPEST = 100


def avro_schema(text: str, references: Mapping[str, str] | None = None, *, name: str = "Value") -> str:
    """The Avro record schema (JSON) of the objects that a JSON Schema describes.

    A property is nullable, with null as its default, unless ``required`` names it and null is none of its types.
    Properties whose names Avro does not allow are an error, since no table could be read by another engine.

    Args:
        text: the JSON Schema.
        references: texts of other schemas by the name that ``$ref`` gives them.
        name: of the record, where the schema has no title.

    Raises:
        ConfigError: no JSON Schema of an object, or a ``$ref`` that leads nowhere.
    """
    documents = {"": _read(text, "the JSON Schema")}
    for key, referred in (references or {}).items():
        documents[key] = _read(referred, f"the referred schema {key}")
        identity = documents[key].get("$id") or documents[key].get("id")
        if isinstance(identity, str):
            documents.setdefault(identity, documents[key])
    translation = _Translation(documents)
    title = documents[""].get("title")
    made, _ = translation.type(documents[""], _record_name(title if isinstance(title, str) else name), "", ())
    if not isinstance(made, dict) or made.get("type") != "record":
        raise ConfigError(
            "The JSON Schema does not describe an object with properties, so it gives no columns",
            hint='decode as json with schema_ddl, or give the schema "type": "object" and properties',
        )
    return json.dumps(made)


def _read(text: str, what: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{what} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{what} is not a JSON object")
    return document


class _Translation:
    def __init__(self, documents: Mapping[str, dict[str, Any]]) -> None:
        self._documents = documents
        self._names: set[str] = set()

    def type(self, schema: Any, name: str, document: str, around: tuple[str, ...]) -> tuple[Any, bool]:
        """The Avro type of a schema, and whether null is one of its values.

        Args:
            schema: the part of ``document`` that is translated.
            name: for a record, if it is one.
            document: key of the document that local references are about.
            around: the references that lead here.
        """
        if not isinstance(schema, dict) or len(around) > _DEEPEST:
            return _TEXT, schema is not False
        if (reference := schema.get("$ref")) is not None:
            return self._referred(str(reference), name, document, around)
        for word in ("oneOf", "anyOf"):
            if word in schema and "properties" not in schema:
                return self._choice(schema[word], name, document, around)
        if "allOf" in schema:
            schema = self._joined(schema, document, around)
        kinds, nullable = _kinds(schema)
        if not kinds:
            return "null", True
        kind = kinds[0]
        if len(kinds) > 1 or kind == _ANYTHING:
            return _TEXT, nullable
        if kind == "object":
            return self._object(schema, name, document, around), nullable
        if kind == "array":
            return self._array(schema, name, document, around), nullable
        if kind == "string":
            return _string(schema), nullable
        return _SINGLE[kind], nullable

    def _referred(self, reference: str, name: str, document: str, around: tuple[str, ...]) -> tuple[Any, bool]:
        where, schema = self._resolve(reference, document)
        key = f"{where}#{reference.partition('#')[2]}"
        if key in around:
            return _TEXT, False
        return self.type(schema, name, where, (*around, key))

    def _resolve(self, reference: str, document: str) -> tuple[str, Any]:
        path, _, pointer = reference.partition("#")
        where = document if not path else path if path in self._documents else _same_file(path, self._documents)
        schema: Any = self._documents[where] if where is not None else None
        for part in (each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]):
            schema = schema.get(part) if isinstance(schema, dict) else None
        if where is None or schema is None:
            raise ConfigError(
                f"The JSON Schema refers to {reference}, which is nowhere",
                hint="register it as a reference of the schema, or correct $ref",
            )
        return where, schema

    def _choice(self, options: Any, name: str, document: str, around: tuple[str, ...]) -> tuple[Any, bool]:
        found = [self.type(option, name, document, around) for option in options if option is not False]
        nullable = any(can_be_null for _, can_be_null in found)
        types = [each for each, _ in found if each != "null"]
        if not types:
            return "null", True
        same = all(each == types[0] for each in types)
        return (types[0] if same else _TEXT), nullable

    def _joined(self, schema: dict[str, Any], document: str, around: tuple[str, ...]) -> dict[str, Any]:
        """The schema with the properties of all that it is made of."""
        properties: dict[str, Any] = {}
        required: list[str] = []
        kinds: dict[str, Any] = {}
        for part in (*schema["allOf"], {key: value for key, value in schema.items() if key != "allOf"}):
            inner: Any = part
            if isinstance(inner, dict) and "$ref" in inner:
                where, inner = self._resolve(str(inner["$ref"]), document)
                inner = _absolute(inner, where)
            if isinstance(inner, dict) and "allOf" in inner and len(around) < _DEEPEST:
                inner = self._joined(inner, document, (*around, "allOf"))
            if isinstance(inner, dict):
                properties |= inner.get("properties", {})
                required += inner.get("required", [])
                kinds |= {key: value for key, value in inner.items() if key not in ("properties", "required")}
        return {**kinds, **({"properties": properties, "required": required} if properties else {})}

    def _object(self, schema: dict[str, Any], name: str, document: str, around: tuple[str, ...]) -> Any:
        properties = schema.get("properties")
        if not properties:
            values = schema.get("additionalProperties")
            if not isinstance(values, dict) or not values:
                return _TEXT
            of_values, nullable = self.type(values, name, document, around)
            return _with_mark({"type": "map", "values": _nullable(of_values, nullable)}, of_values)
        own = self._unused(name)
        required = set(schema.get("required", ()))
        fields = []
        for key, value in properties.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
                raise ConfigError(
                    f"The property '{key}' of the JSON Schema cannot be a column",
                    hint="names are of letters, digits and underscores; or decode as json with schema_ddl",
                )
            made, nullable = self.type(value, f"{own}_{key}", document, around)
            optional = nullable or key not in required
            field: dict[str, Any] = {"name": key, "type": _nullable(_bare(made), optional)}
            if optional:
                field["default"] = None
            if _marked(made):
                field[ANY] = True
            fields.append(field)
        return {"type": "record", "name": own, "fields": fields}

    def _array(self, schema: dict[str, Any], name: str, document: str, around: tuple[str, ...]) -> Any:
        items = schema.get("items")
        if not isinstance(items, dict) or not items or "prefixItems" in schema:
            return _TEXT
        of_items, nullable = self.type(items, name, document, around)
        return _with_mark({"type": "array", "items": _nullable(of_items, nullable)}, of_items)

    def _unused(self, name: str) -> str:
        """Avro names a record once; here each place has a record of its own."""
        chosen, number = name, 2
        while chosen in self._names:
            chosen, number = f"{name}_{number}", number + 1
        self._names.add(chosen)
        return chosen


def _kinds(schema: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The schema's types without null, and whether null is one of them (or may be, where it does not say)."""
    said = schema.get("type")
    if said is None:
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if values is not None:
            said = sorted({_kind_of(value) for value in values})
        elif "properties" in schema:
            said = "object"
        elif "items" in schema:
            said = "array"
        else:
            return [_ANYTHING], True
    words = [said] if isinstance(said, str) else list(said)
    kinds = [word for word in words if word != "null"]
    if set(kinds) == {"integer", "number"}:
        kinds = ["number"]
    return [
        kind if kind in _SINGLE or kind in ("object", "array", "string") else _ANYTHING for kind in kinds
    ], "null" in words


def _kind_of(value: Any) -> str:
    for kind, types in (("null", type(None)), ("boolean", bool), ("integer", int), ("number", float), ("string", str)):
        if isinstance(value, types):
            return kind
    return "array" if isinstance(value, list) else "object"


def _string(schema: Mapping[str, Any]) -> Any:
    if schema.get("contentEncoding") == "base64" or schema.get("format") in ("byte", "base64"):
        return "bytes"
    return _FORMATS.get(str(schema.get("format")), "string")


def _nullable(made: Any, nullable: bool) -> Any:
    bare = _bare(made)
    return ["null", bare] if nullable and bare != "null" else bare


def _bare(made: Any) -> Any:
    """The type without the mark, which belongs to the field."""
    if isinstance(made, dict) and ANY in made:
        rest = {key: value for key, value in made.items() if key != ANY}
        return rest["type"] if len(rest) == 1 else rest
    return made


def _marked(made: Any) -> bool:
    return isinstance(made, dict) and made.get(ANY) is True


def _with_mark(container: dict[str, Any], part: Any) -> dict[str, Any]:
    return {**container, ANY: True} if _marked(part) else container


def _absolute(schema: Any, document: str) -> Any:
    """Local references made references into their document."""
    if isinstance(schema, list):
        return [_absolute(each, document) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: f"{document}{value}"
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else _absolute(value, document)
        for key, value in schema.items()
    }


def _same_file(path: str, documents: Mapping[str, Any]) -> str | None:
    """The document that a relative or absolute path means, by its last part."""
    last = path.rstrip("/").rpartition("/")[2]
    return next((key for key in documents if key and key.rpartition("/")[2] == last), None)


def _record_name(title: str) -> str:
    name = re.sub(r"\W+", "_", title, flags=re.ASCII).strip("_") or "Value"
    return f"_{name}" if name[0].isdigit() else name
