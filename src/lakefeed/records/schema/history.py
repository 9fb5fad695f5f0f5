"""What became of a table's columns, when and by which schema id: kept in the table's own properties.

``lakefeed.schema-history``
    ``{"dropped": 0, "entries": [{"at": "2026-11-21T18:00:00Z", "id": 7, "changes": [[kind, path, before, after]]}]}``,
    newest last, at most ``LIMIT`` entries; ``dropped`` counts the older ones that had to go.
``lakefeed.schema-ids``
    the ids that have been merged, ``1,2,7``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lakefeed.errors import ConfigError
from lakefeed.records.schema.differences import Change

HISTORY = "lakefeed.schema-history"
IDS = "lakefeed.schema-ids"
LIMIT = 100
_LONGEST_TYPE = 80


@dataclass(frozen=True)
class Entry:
    """What one schema id changed.

    Attributes:
        at: when the table was changed, in UTC.
        schema_id: by which writer's schema; None for a table's first columns or a change that no id caused.
        changes: what became another.
    """

    at: datetime
    schema_id: int | None
    changes: tuple[Change, ...]

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            "at": _stamp(self.at),
            "schema_id": self.schema_id,
            "changes": [
                {"kind": each.kind, "path": each.path, "before": each.before, "after": each.after}
                for each in self.changes
            ],
        }


@dataclass(frozen=True)
class History:
    """A table's entries, newest last, and how many older ones are gone."""

    entries: tuple[Entry, ...] = ()
    dropped: int = 0


def read_history(properties: Mapping[str, str]) -> History:
    """The history in a table's properties; empty if it has none.

    Raises:
        ConfigError: the property was changed by hand into something else.
    """
    text = properties.get(HISTORY)
    if text is None:
        return History()
    try:
        document = json.loads(text)
        return History(tuple(_entry(each) for each in document["entries"]), int(document["dropped"]))
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(HISTORY, error) from None


def read_ids(properties: Mapping[str, str]) -> frozenset[int]:
    """The schema ids that have been merged into the table.

    Raises:
        ConfigError: the property was changed by hand into something else.
    """
    try:
        return frozenset(int(each) for each in properties.get(IDS, "").split(",") if each)
    except ValueError as error:
        raise _broken(IDS, error) from None


def with_entries(properties: Mapping[str, str], entries: Iterable[Entry], *, ids: Iterable[int] = ()) -> dict[str, str]:
    """The new values of the two properties; those that would not change are left out.

    Args:
        properties: the table's present ones.
        entries: what happened, oldest first; those without changes are not kept.
        ids: ids that are merged now, in addition to those of the entries.
    """
    entries = list(entries)
    before, known = read_history(properties), read_ids(properties)
    kept = [*before.entries, *(each for each in entries if each.changes)]
    merged = known | set(ids) | {each.schema_id for each in entries if each.schema_id is not None}
    values = {}
    if len(kept) > len(before.entries):
        dropped = before.dropped + max(0, len(kept) - LIMIT)
        values[HISTORY] = _compact({"dropped": dropped, "entries": [_document(each) for each in kept[-LIMIT:]]})
    if merged != known:
        values[IDS] = ",".join(str(each) for each in sorted(merged))
    return values


def _document(entry: Entry) -> dict[str, Any]:
    changes = [[each.kind, each.path, _clipped(each.before), _clipped(each.after)] for each in entry.changes]
    return {"at": _stamp(entry.at), "id": entry.schema_id, "changes": changes}


def _entry(document: Mapping[str, Any]) -> Entry:
    return Entry(
        at=datetime.fromisoformat(document["at"]),
        schema_id=document["id"],
        changes=tuple(Change(*each) for each in document["changes"]),
    )


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _clipped(text: str | None) -> str | None:
    return text if text is None or len(text) <= _LONGEST_TYPE else f"{text[: _LONGEST_TYPE - 1]}…"


def _compact(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _broken(key: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"the table's property {key} is not what lakefeed writes: {error}",
        hint=f"ALTER TABLE … UNSET TBLPROPERTIES ('{key}')",
    )
