"""Avro schemas that refer to types of other schemas, rewritten so that they stand alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lakefeed.errors import ConfigError
from lakefeed.records.schema.parse import parse_any

_NAMED = {"record", "error", "enum", "fixed"}


def inline(text: str, referred: Sequence[str]) -> str:
    """Put each type that an Avro schema uses out of ``referred`` in where it is used first.

    Args:
        text: an Avro schema (JSON).
        referred: Avro schemas (JSON) that define the types, each after those that it uses itself.

    Raises:
        ConfigError: one of them is no Avro schema.
    """
    definitions: dict[str, Any] = {}
    try:
        for schema in referred:
            _collect(json.loads(schema), "", definitions)
        return json.dumps(_with_types(json.loads(text), "", definitions, set()))
    except RecursionError:
        raise ConfigError("the Avro schema, or one that it refers to, has too many levels inside each other") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        # Parsed alone, the malformed one raises the error that says what is wrong.
        for schema in (*referred, text):
            parse_any(schema, is_part=True)
        raise ConfigError("the Avro schema and those that it refers to do not fit together") from None


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _names(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    """Return the full name of a named type, and the namespace inside it."""
    full = _full_name(schema["name"], schema.get("namespace", namespace))
    return full, full.rpartition(".")[0]


def _collect(schema: Any, namespace: str, definitions: dict[str, Any]) -> None:
    """Add each named type to ``definitions`` under its full name, with its namespace written out."""
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
    """Return ``schema`` with the definition of each type in ``definitions`` that is not ``known`` yet."""
    if isinstance(schema, str):
        full = _full_name(schema, namespace)
        full = full if full in definitions or full in known else schema
        if full in known:
            return full
        return _with_types(definitions[full], "", definitions, known) if full in definitions else schema
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
    parts = ("items", "values") if isinstance(result["type"], str) else ("items", "values", "type")
    for part in parts:
        if part in result:
            result[part] = _with_types(result[part], namespace, definitions, known)
    return result
