"""A record as people see it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from lakefeed.clients.kafka.records import Record
from lakefeed.records.decode.reading_plan import Format, ReadingPlan


@dataclass(frozen=True, kw_only=True)
class ShownRecord:
    """A record with what its bytes say.

    Attributes:
        format: how the value was read.
        key: the key, decoded; bytes that are no text are ``0x…``.
        value: the value, decoded, or the columns that were asked for.
        schema_id: of the writer's schema, where the record names one.
        error: why the value or the key cannot be read; None if it can.
        size: bytes of key, value and headers.
    """

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    format: Format
    key: Any
    value: Any
    schema_id: int | None = None
    error: str | None = None
    headers: tuple[tuple[str, Any], ...] = ()
    size: int = 0
    raw: Record | None = field(default=None, repr=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        time = None if self.timestamp is None else self.timestamp.isoformat(timespec="milliseconds")
        fields = asdict(self)
        fields.pop("raw")
        headers = [{"name": name, "value": value} for name, value in self.headers]
        return {**fields, "timestamp": time, "headers": headers}


def shown_record(
    record: Record,
    value: ReadingPlan,
    key: ReadingPlan,
    decoded: dict[str, Any],
    *,
    columns: bool = False,
    note: str | None = None,
) -> ShownRecord:
    """Put a record together with what the JVM has said of it, if it was asked."""
    error = decoded.get("error") if value.options or key.options else None
    shown = decoded.get("value") if columns or (value.options and "value" in decoded) else plain(record.value, value)
    schema_id = decoded.get("schema_id")
    return ShownRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=None if record.timestamp is None else datetime.fromtimestamp(record.timestamp / 1000, UTC),
        format=value.format if record.value is not None else "null",
        key=decoded.get("key") if key.options else plain(record.key, key),
        value=shown,
        schema_id=value.schema_id if schema_id is None else schema_id,
        error=error or (note if value.options else None),
        headers=tuple((name, plain(content, None)) for name, content in record.headers),
        size=record.size,
        raw=record,
    )


def plain(data: bytes | None, plan: ReadingPlan | None) -> Any:
    """Return bytes as JSON, text or hexadecimal digits."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return _parsed(text) if plan is not None and plan.format == "json" and not plan.options else text


def is_json(text: str) -> bool:
    """Check that a text is JSON that could be written again."""
    try:
        _parsed(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parsed(text: str) -> Any:
    """Parse JSON; what Python takes for it but could not write again as JSON is a ValueError."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def exact(text: str) -> float | str:
    """Read a number; a decimal with more digits than a float keeps stays text."""
    number = float(text)
    return number if Decimal(repr(number)) == Decimal(text) else text


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not JSON")
    return number
