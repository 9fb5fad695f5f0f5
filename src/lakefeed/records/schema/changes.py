"""The changes between two versions of a reader's schema, and their history in a table's properties.

``lakefeed.schema-history``
    ``{"dropped": 0, "entries": [{"at": "2026-11-21T18:00:00Z", "id": 7, "changes": [[kind, path, before, after]]}]}``,
    newest last, at most ``LIMIT`` entries; ``dropped`` is the number of older entries that were removed.
``lakefeed.schema-ids``
    the ids of the merged schemas, such as ``1,2,7``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from lakefeed.errors import ConfigError
from lakefeed.records.schema.avro import (
    ANY,
    NO_DEFAULT,
    AvroSchema,
    Container,
    Named,
    Ref,
    Type,
    child_path,
    members,
    nullable,
    type_text,
    walk,
)
from lakefeed.records.schema.parse import parse

HISTORY = "lakefeed.schema-history"
IDS = "lakefeed.schema-ids"
LIMIT = 100
_LONGEST_TYPE = 80
Kind = Literal["added", "promoted", "made_optional", "renamed", "dropped"]


@dataclass(frozen=True)
class Change:
    """One change of the reader's schema.

    Attributes:
        kind: ``promoted``: the type became wider, or an enum got symbols. ``dropped``: the field became optional
            because a writer's schema lacks it; its column stays.
        path: the path after the change: ``address.zip``, ``items.element.price``, ``totals.value``.
        before: a description of the old type; for ``renamed`` the old name; None for ``added``.
        after: a description of the new type; for ``renamed`` the new name.
    """

    kind: Kind
    path: str
    before: str | None
    after: str

    def __str__(self) -> str:
        texts = {
            "added": f"added ({self.after})",
            "promoted": f"widened from {self.before} to {self.after}",
            "made_optional": f"made optional ({self.after})",
            "renamed": f"renamed from {self.before}",
            "dropped": "made optional, because the writer lacks it",
        }
        return f"{self.path} {texts[self.kind]}"


@dataclass(frozen=True)
class Entry:
    """The changes of a table after the merge of one writer's schema."""

    at: datetime
    schema_id: int | None
    """The id of the merged schema; None for the table's first columns, or if the id is unknown."""
    changes: tuple[Change, ...]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "at": _stamp(self.at)}


@dataclass(frozen=True)
class History:
    entries: tuple[Entry, ...] = ()
    dropped: int = 0
    """The number of older entries that were removed."""


def read_history(properties: Mapping[str, str]) -> History:
    """Read the history from a table's properties; raise ``ConfigError`` if it is invalid."""
    if HISTORY not in properties:
        return History()
    try:
        document = json.loads(properties[HISTORY])
        entries = []
        for entry in document["entries"]:
            changes = tuple(Change(*change) for change in entry["changes"])
            entries.append(Entry(datetime.fromisoformat(entry["at"]), entry["id"], changes))
        return History(tuple(entries), int(document["dropped"]))
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(HISTORY, error) from None


def read_ids(properties: Mapping[str, str]) -> frozenset[int]:
    """Read the ids of the merged schemas from a table's properties; raise ``ConfigError`` if they are invalid."""
    try:
        return frozenset(int(number) for number in properties.get(IDS, "").split(",") if number)
    except ValueError as error:
        raise _broken(IDS, error) from None


def history_properties(
    properties: Mapping[str, str], entries: Iterable[Entry], *, ids: Iterable[int] = ()
) -> dict[str, str]:
    """Return the properties' new values after adding new entries (oldest first) and newly merged ids.

    The history omits entries without changes.
    """
    entries = list(entries)
    before, known = read_history(properties), read_ids(properties)
    history = [*before.entries, *(entry for entry in entries if entry.changes)]
    merged = known | set(ids) | {entry.schema_id for entry in entries if entry.schema_id is not None}
    values = {}
    if len(history) > len(before.entries):
        dropped = before.dropped + max(0, len(history) - LIMIT)
        document = {"dropped": dropped, "entries": [_document(entry) for entry in history[-LIMIT:]]}
        values[HISTORY] = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    if merged != known:
        values[IDS] = ",".join(str(number) for number in sorted(merged))
    return values


def _document(entry: Entry) -> dict[str, Any]:
    changes = [[change.kind, change.path, _clip(change.before), _clip(change.after)] for change in entry.changes]
    return {"at": _stamp(entry.at), "id": entry.schema_id, "changes": changes}


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _clip(text: str | None) -> str | None:
    return text if text is None or len(text) <= _LONGEST_TYPE else f"{text[: _LONGEST_TYPE - 1]}…"


def _broken(key: str, error: Exception) -> ConfigError:
    hint = f"another program has changed the property; remove it: ALTER TABLE … UNSET TBLPROPERTIES ('{key}')"
    return ConfigError(f"the table's property {key} cannot be read: {error}", hint=hint)


def renames(text: str) -> tuple[Change, ...]:
    """Return the renames that a schema's aliases show, outer fields first.

    By them, ``ddl.statements`` finds columns that still have an older name, for example after a crash between the
    schema's change and the table's.
    """
    schema = parse(text)
    columns = ((path, field) for path, field in walk(schema, schema.root) if field is not None)
    return tuple(Change("renamed", path, alias, field.name) for path, field in columns for alias in field.aliases)


def differences(before: AvroSchema, after: AvroSchema) -> tuple[Change, ...]:
    """Return the changes between two schemas, outer fields first."""
    return tuple(_Comparison(before, after).compare(before.root, after.root, ""))


class _Comparison:
    def __init__(self, before: AvroSchema, after: AvroSchema) -> None:
        self._before, self._after = before, after
        self._open: set[tuple[str, str]] = set()

    def compare(self, old: Type, new: Type, path: str, *, absent: bool = False) -> Iterator[Change]:
        if nullable(new) and not nullable(old):
            yield self._change("dropped" if absent else "made_optional", path, old, new)
        were, are = members(old), members(new)
        if not were and len(are) == 1:
            yield self._change("promoted", path, old, new)
            return
        if len(were) == len(are) == 1:
            yield from self._compare_single(were[0], are[0], path)
            return
        for index, (one, two) in enumerate(zip(were, are, strict=False)):
            yield from self._compare_single(one, two, f"{path}.member{index}")
        for index in range(len(were), len(are)):
            yield Change("added", f"{path}.member{index}", None, type_text(are[index], self._after))

    def _compare_single(self, old: Type, new: Type, path: str) -> Iterator[Change]:
        if isinstance(old, Container) and isinstance(new, Container) and old.kind == new.kind:
            yield from self.compare(old.values, new.values, f"{path}.{old.step}")
        elif isinstance(old, Ref) and isinstance(new, Ref):
            was, now = self._before.look_up(old), self._after.look_up(new)
            if was.kind == now.kind == "record":
                yield from self._compare_records(was, now, path)
            elif type_text(old, self._before) != type_text(new, self._after):
                yield self._change("promoted", path, old, new)
        elif old != new:
            yield self._change("promoted", path, old, new)

    def _compare_records(self, was: Named, now: Named, path: str) -> Iterator[Change]:
        pair = (was.name, now.name)
        if pair in self._open:
            return
        self._open.add(pair)
        known = {field.name: field for field in was.fields}
        names = {field.name for field in now.fields}
        for field in now.fields:
            older = [alias for alias in field.aliases if alias in known and alias not in names]
            old = known.get(field.name) or (known[older[0]] if older else None)
            place = child_path(path, field.name)
            if old is None:
                yield Change("added", place, None, type_text(field.type, self._after))
                continue
            if old.name != field.name:
                yield Change("renamed", place, old.name, field.name)
            if old.default is NO_DEFAULT and field.default is None and nullable(old.type):
                # A nullable field without a default was required: only a default makes a field optional.
                yield self._change("dropped", place, old.type, field.type)
            if members(old.type) and field.extra.get(ANY) and not old.extra.get(ANY):
                yield Change("promoted", place, type_text(old.type, self._before), "any JSON as text")
            yield from self.compare(old.type, field.type, place, absent=field.absent)
        self._open.remove(pair)

    def _change(self, kind: Kind, path: str, old: Type, new: Type) -> Change:
        return Change(kind, path, type_text(old, self._before), type_text(new, self._after))
