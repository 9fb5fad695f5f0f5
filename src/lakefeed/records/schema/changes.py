"""What became of a table's columns, when and by which schema id: kept in the table's own properties.

``lakefeed.schema-history``
    ``{"dropped": 0, "entries": [{"at": "2026-11-21T18:00:00Z", "id": 7, "changes": [[kind, path, before, after]]}]}``,
    newest last, at most ``LIMIT`` entries; ``dropped`` counts the older ones that had to go.
``lakefeed.schema-ids``
    the ids that have been merged, ``1,2,7``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from lakefeed.errors import ConfigError
from lakefeed.records.schema.avro import (
    NO_DEFAULT,
    Array,
    AvroSchema,
    Field,
    Map,
    Record,
    Ref,
    Type,
    described,
    members,
    nullable,
)
from lakefeed.records.schema.parse import parse

Kind = Literal["added", "promoted", "made_optional", "renamed", "dropped"]


@dataclass(frozen=True)
class Change:
    """One change of the reader's schema.

    Attributes:
        kind: ``promoted`` is a wider type, an enum's new symbols too; ``dropped`` a field that a writer lacks and
            that therefore became optional: its column stays.
        path: where, after the change: ``address.zip``, ``items.element.price``, ``totals.value``.
        before: the type in words; for ``renamed`` the old name; None for ``added``.
        after: the type in words; for ``renamed`` the new name.
    """

    kind: Kind
    path: str
    before: str | None
    after: str

    def __str__(self) -> str:
        match self.kind:
            case "added":
                return f"{self.path} added ({self.after})"
            case "renamed":
                return f"{self.path} renamed from {self.before}"
            case "dropped":
                return f"{self.path} dropped by the writer: optional from now on"
            case "made_optional":
                return f"{self.path} made optional ({self.after})"
        return f"{self.path} widened from {self.before} to {self.after}"


def differences(before: AvroSchema, after: AvroSchema) -> tuple[Change, ...]:
    """What became another, outer fields before inner ones."""
    return tuple(_Walk(before, after).type(before.root, after.root, "", absent=False))


def renames(text: str) -> tuple[Change, ...]:
    """The renames that a schema's aliases tell of, outer fields before inner ones, whenever they happened.

    With them ``lakefeed.records.schema.ddl.statements`` finds out from the table alone which columns still have an
    older name: also after a crash between a change of the schema and that of the table.

    Args:
        text: the reader's schema (Avro JSON).

    Raises:
        ConfigError: it is no Avro record schema.
    """
    schema = parse(text)
    return tuple(_renames(schema, schema.root, "", frozenset()))


def _renames(schema: AvroSchema, type_: Type, path: str, around: frozenset[str]) -> Iterator[Change]:
    flat = members(type_)
    for at, each in enumerate(flat):
        here = path if len(flat) == 1 else f"{path}.member{at}"
        if isinstance(each, Array):
            yield from _renames(schema, each.items, f"{here}.element", around)
        elif isinstance(each, Map):
            yield from _renames(schema, each.values, f"{here}.value", around)
        elif isinstance(each, Ref) and isinstance(record := schema.named(each), Record) and record.name not in around:
            for field in record.fields:
                place = f"{here}.{field.name}" if here else field.name
                yield from (Change("renamed", place, alias, field.name) for alias in field.aliases)
                yield from _renames(schema, field.type, place, around | {record.name})


class _Walk:
    def __init__(self, before: AvroSchema, after: AvroSchema) -> None:
        self._before, self._after = before, after
        self._open: set[tuple[str, str]] = set()

    def type(self, old: Type, new: Type, path: str, *, absent: bool) -> Iterator[Change]:
        if nullable(new) and not nullable(old):
            kind: Kind = "dropped" if absent else "made_optional"
            yield Change(kind, path, described(old, self._before), described(new, self._after))
        were, are = members(old), members(new)
        if len(were) <= 1 and len(are) == 1:
            yield from self._single(were[0], are[0], path) if were else [self._promoted(old, new, path)]
            return
        for index, (one, two) in enumerate(zip(were, are, strict=False)):
            yield from self._single(one, two, f"{path}.member{index}")
        for index in range(len(were), len(are)):
            yield Change("added", f"{path}.member{index}", None, described(are[index], self._after))

    def _single(self, old: Type, new: Type, path: str) -> Iterator[Change]:
        if isinstance(old, Array) and isinstance(new, Array):
            yield from self.type(old.items, new.items, f"{path}.element", absent=False)
        elif isinstance(old, Map) and isinstance(new, Map):
            yield from self.type(old.values, new.values, f"{path}.value", absent=False)
        elif isinstance(old, Ref) and isinstance(new, Ref):
            yield from self._named(old, new, path)
        elif old != new:
            yield self._promoted(old, new, path)

    def _named(self, old: Ref, new: Ref, path: str) -> Iterator[Change]:
        was, now = self._before.named(old), self._after.named(new)
        if not isinstance(was, Record) or not isinstance(now, Record):
            if described(old, self._before) != described(new, self._after):
                yield self._promoted(old, new, path)
            return
        pair = (was.name, now.name)
        if pair in self._open:
            return
        self._open.add(pair)
        known = {each.name: each for each in was.fields}
        names = {each.name for each in now.fields}
        found = {each.name: self._counterpart(each, known, names) for each in now.fields}
        for each in now.fields:
            yield from self._field(found[each.name], each, f"{path}.{each.name}" if path else each.name)
        self._open.remove(pair)

    @staticmethod
    def _counterpart(field: Field, known: dict[str, Field], names: set[str]) -> Field | None:
        if field.name in known:
            return known[field.name]
        return next((known[alias] for alias in field.aliases if alias in known and alias not in names), None)

    def _field(self, old: Field | None, new: Field, path: str) -> Iterator[Change]:
        if old is None:
            yield Change("added", path, None, described(new.type, self._after))
            return
        if old.name != new.name:
            yield Change("renamed", path, old.name, new.name)
        below = list(self.type(old.type, new.type, path, absent=new.absent))
        if old.default is NO_DEFAULT and new.default is None and nullable(old.type):
            # It was optional already, but no reader could do without it.
            yield Change("dropped", path, described(old.type, self._before), described(new.type, self._after))
        yield from below

    def _promoted(self, old: Type, new: Type, path: str) -> Change:
        return Change("promoted", path, described(old, self._before), described(new, self._after))


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


def history_properties(
    properties: Mapping[str, str], entries: Iterable[Entry], *, ids: Iterable[int] = ()
) -> dict[str, str]:
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
