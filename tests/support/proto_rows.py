"""Compute a message's expected row with the reference library, to compare it with lakefeed's row."""

import base64
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

UNSIGNED = (4, 6)  # The types uint64 and fixed64.
KNOWN = "google.protobuf."


@dataclass(frozen=True)
class Struct:
    """A row: its values by name."""

    fields: list[tuple[str, Any]]


@dataclass(frozen=True)
class Json:
    """The expected value of a column that contains JSON as text."""

    value: Any


def row_of(message: Any, reader: Any, open_types: frozenset[str] = frozenset()) -> Struct:
    """Return the expected row, with the columns of the reader's type.

    Args:
        message: a message of the writer's type.
        reader: the descriptor of the reader's type.
        open_types: full names of the enclosing types of the reader.
    """
    inside = open_types | {reader.full_name}
    written = message.DESCRIPTOR.fields_by_name
    return Struct([(each.name, _column(message, written.get(each.name), each, inside)) for each in reader.fields])


def _column(message: Any, writer: Any, reader: Any, inside: frozenset[str]) -> Any:
    if writer is None:
        return _unset(reader)
    if _is_map(writer):
        value = writer.message_type.fields_by_name["value"]
        entries = getattr(message, writer.name)
        read = reader.message_type.fields_by_name["value"]
        return {_key(key): _one(entries[key], value, read, inside) for key in entries}
    if writer.is_repeated:
        return [_one(each, writer, reader, inside) for each in getattr(message, writer.name)]
    if writer.has_presence and not message.HasField(writer.name):
        return _unset(reader)
    return _one(getattr(message, writer.name), writer, reader, inside)


def _unset(reader: Any) -> Any:
    if _is_map(reader):
        return {}
    if reader.is_repeated:
        return []
    return None if reader.has_presence else _one(reader.default_value, reader, reader, frozenset())


def _one(value: Any, writer: Any, reader: Any, inside: frozenset[str]) -> Any:
    if writer.message_type is None:
        found = _scalar(value, writer)
        return str(found).lower() if isinstance(found, bool) and reader.type == 9 else found
    name = writer.message_type.full_name
    if name == f"{KNOWN}Timestamp":
        return value.seconds * 1_000_000 + value.nanos // 1_000
    if name.startswith(KNOWN) and name.endswith("Value") and "value" in writer.message_type.fields_by_name:
        return _scalar(value.value, writer.message_type.fields_by_name["value"])
    if name in (f"{KNOWN}Struct", f"{KNOWN}Value", f"{KNOWN}ListValue") or reader.message_type.full_name in inside:
        return Json(json_of(value))
    return row_of(value, reader.message_type, inside)


def _scalar(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        names = [each.name for each in field.enum_type.values if each.number == value]
        return names[0] if names else str(value)
    return Decimal(value) if field.type in UNSIGNED else value


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def json_of(message: Any) -> Any:
    """Return the expected JSON of a message: fields that are set, and all fields without presence."""
    name = message.DESCRIPTOR.full_name
    if name == f"{KNOWN}Struct":
        return {key: json_of(message.fields[key]) for key in message.fields}
    if name == f"{KNOWN}ListValue":
        return [json_of(each) for each in message.values]
    if name == f"{KNOWN}Value":
        kind = message.WhichOneof("kind")
        if kind is None or kind == "null_value":
            return None
        value = getattr(message, kind)
        return json_of(value) if kind in ("struct_value", "list_value") else value
    if name == f"{KNOWN}Timestamp":
        return _instant(message.seconds, message.nanos)
    if name.startswith(KNOWN) and name.endswith("Value") and "value" in message.DESCRIPTOR.fields_by_name:
        return _json_one(message.value, message.DESCRIPTOR.fields_by_name["value"])
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            of = field.message_type.fields_by_name["value"]
            found[field.name] = {_key(key): _json_one(value[key], of) for key in value}
        elif field.is_repeated:
            found[field.name] = [_json_one(each, field) for each in value]
        elif not field.has_presence or message.HasField(field.name):
            found[field.name] = _json_one(value, field)
    return found


def _json_one(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return json_of(value)
    found = _scalar(value, field)
    if isinstance(found, bytes):
        return base64.b64encode(found).decode()
    return int(found) if isinstance(found, Decimal) else found


def _instant(seconds: int, nanos: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    digits = 0 if nanos == 0 else 3 if nanos % 1_000_000 == 0 else 6 if nanos % 1_000 == 0 else 9
    fraction = f".{nanos:09d}"[: digits + 1] if digits else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + f"{fraction}Z"


def same(found: Any, expected: Any) -> bool:
    """Check that a value in ``Canonical.java``'s form equals the expected value."""
    if expected is None or found is None:
        return expected is None and found is None
    if isinstance(expected, Struct):
        return [each[0] for each in found] == [name for name, _ in expected.fields] and all(
            same(mine[1], theirs[1]) for mine, theirs in zip(found, expected.fields, strict=True)
        )
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, Json):
        return bool(json.loads(found) == expected.value)
    if isinstance(expected, bytes):
        return bool(found == expected.hex())
    if isinstance(expected, bool):
        return bool(found == str(expected).lower())
    if isinstance(expected, float):
        return float(found) == expected or (math.isnan(expected) and found == "NaN")
    return Decimal(found) == expected if isinstance(expected, (int, Decimal)) else bool(found == expected)
