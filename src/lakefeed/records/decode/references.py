"""Avro schemas that refer to types of other schemas, made to stand alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lakefeed.errors import ConfigError
from lakefeed.records.schema.parse import parse_any

_NAMED = {"record", "error", "enum", "fixed"}


def inlined(text: str, referred: Sequence[str]) -> str:
    """``text`` with each type that it uses out of ``referred`` put in where it is used first.

    Args:
        text: an Avro schema (JSON).
        referred: Avro schemas (JSON) that define the types, each after those that it uses itself.

    Raises:
        ConfigError: one of them is no Avro schema.
    """
    definitions: dict[str, Any] = {}
    try:
        for each in referred:
            schema = json.loads(each)
            _collect(schema, "", definitions)
        return json.dumps(_with_types(json.loads(text), "", definitions, set()))
    except RecursionError:
        raise ConfigError("the Avro schema, or one that it refers to, has too many levels inside each other") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        # Read alone, the one that is wrong says what is wrong.
        for each in (*referred, text):
            parse_any(each, is_part=True)
        raise ConfigError("the Avro schema and those that it refers to do not fit together") from None


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _names(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    """The full name of a named type, and the namespace inside it."""
    full = _full_name(schema["name"], schema.get("namespace", namespace))
    return full, full.rpartition(".")[0]


def _collect(schema: Any, namespace: str, definitions: dict[str, Any]) -> None:
    """Notes each named type under its full name, with its namespace said."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, namespace, definitions)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind in _NAMED:
            full, namespace = _names(schema, namespace)
            definitions[full] = {**schema, "name": full.rpartition(".")[2], "namespace": namespace}
        for field in schema.get("fields", ()):
            _collect(field["type"], namespace, definitions)
        for part in ("items", "values"):
            _collect(schema.get(part), namespace, definitions)
        if not isinstance(kind, str):
            _collect(kind, namespace, definitions)


def _with_types(schema: Any, namespace: str, definitions: dict[str, Any], known: set[str]) -> Any:
    """``schema`` with the definition of each type in ``definitions`` that is not ``known`` yet."""
    if isinstance(schema, str):
        full = _full_name(schema, namespace)
        full = full if full in definitions or full in known else schema
        if full in known or full not in definitions:
            return full if full in known else schema
        return _with_types(definitions[full], "", definitions, known)
    if isinstance(schema, list):
        return [_with_types(branch, namespace, definitions, known) for branch in schema]
    result = dict(schema)
    if result["type"] in _NAMED:
        full, namespace = _names(result, namespace)
        known.add(full)
    if "fields" in result:
        result["fields"] = [
            {**field, "type": _with_types(field["type"], namespace, definitions, known)} for field in result["fields"]
        ]
    for part in ("items", "values"):
        if part in result:
            result[part] = _with_types(result[part], namespace, definitions, known)
    if not isinstance(result["type"], str):
        result["type"] = _with_types(result["type"], namespace, definitions, known)
    return result
