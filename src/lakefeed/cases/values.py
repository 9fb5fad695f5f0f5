"""Compares and shows values of rows: what YAML can write, and what Spark's types hold."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

Row = Mapping[str, Any]

TIMES = ("timestamp", "timestamp_ntz")


def same(expected: Any, actual: Any, type_: Any, *, exact: bool) -> bool:
    """Compare a value of the case with one of a row, which is as ``read_row`` has it; ``type_`` is Spark's JSON."""
    if expected is None or actual is None:
        return expected is None and actual is None
    if isinstance(type_, dict):
        return bool(_same_nested(expected, actual, type_, exact=exact))
    if type_ in TIMES:
        return _instant(expected) == _instant(actual)
    if type_ == "date":
        return _day(expected) == _day(actual)
    if type_ == "binary":
        return str(expected) in _texts_of(actual) or str(expected).lower() in _hex_of(actual)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return bool(expected is actual)
    if isinstance(type_, str) and type_.startswith("decimal"):
        return _decimal(expected) == _decimal(actual)
    if type_ in ("double", "float"):
        one, other = _number(expected), _number(actual)
        return one == other or (one is not None and other is not None and math.isnan(one) and math.isnan(other))
    if isinstance(expected, date | datetime):
        return bool(expected.isoformat() == actual)
    if isinstance(expected, int | float) and isinstance(actual, int | Decimal):
        return bool(expected == actual)
    return type(expected) is type(actual) and bool(expected == actual)


def _same_nested(expected: Any, actual: Any, type_: Mapping[str, Any], *, exact: bool) -> bool:
    match type_["type"]:
        case "struct":
            types = {each["name"]: each["type"] for each in type_["fields"]}
            return (
                isinstance(expected, dict)
                and (not exact or expected.keys() == types.keys())
                and all(
                    name in types and same(value, actual.get(name), types[name], exact=exact)
                    for name, value in expected.items()
                )
            )
        case "array":
            return (
                isinstance(expected, list)
                and len(expected) == len(actual)
                and all(
                    same(one, other, type_["elementType"], exact=exact)
                    for one, other in zip(expected, actual, strict=True)
                )
            )
        case "map":
            given = {str(key): value for key, value in expected.items()} if isinstance(expected, dict) else {}
            return given.keys() == actual.keys() and all(
                same(value, actual[key], type_["valueType"], exact=exact) for key, value in given.items()
            )
    return bool(expected == actual)


def read_row(text: str) -> Row:
    """Read a row that ``lakefeed.records.encode.encode.json_of`` has written; numbers keep all digits."""
    row: Row = json.loads(text, parse_float=Decimal)
    return row


def shown_row(row: Row, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for a message or a JSON document."""
    return {name: shown(value, types.get(name)) for name, value in row.items()}


def shown(value: Any, type_: Any) -> Any:
    """Return a value of a row for a message or a JSON document: bytes as text if they are, else as hex."""
    if isinstance(value, dict):
        inner = type_ if isinstance(type_, dict) else {}
        types = {each["name"]: each["type"] for each in inner.get("fields", ())}
        return {name: shown(below, types.get(name, inner.get("valueType"))) for name, below in value.items()}
    if isinstance(value, list):
        return [shown(each, type_.get("elementType") if isinstance(type_, dict) else None) for each in value]
    if value is not None and type_ == "binary":
        return _texts_of(value)[0]
    if isinstance(value, Decimal):
        return str(value) if isinstance(type_, str) and type_.startswith("decimal") else float(value)
    if isinstance(value, str) and type_ in TIMES and (time := _instant(value)) is not None:
        return time.replace(tzinfo=None).isoformat()
    return value


def _texts_of(content: str) -> list[str]:
    """Return the ways to write bytes, given as base64: as text if they are printable UTF-8, and as hex."""
    found = base64.b64decode(content)
    try:
        text = found.decode()
    except UnicodeDecodeError:
        text = ""
    as_text = [text] if text.isprintable() and (text or not found) else []
    return [*as_text, *_hex_of(content)]


def _hex_of(content: str) -> list[str]:
    found = base64.b64decode(content)
    return [found.hex(" "), found.hex(), f"0x{found.hex()}"]


def _instant(value: Any) -> datetime | None:
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return time.astimezone(UTC) if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _day(value: Any) -> str:
    return value.date().isoformat() if isinstance(value, datetime) else str(value)


def _decimal(value: Any) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (ValueError, TypeError):
        return None
