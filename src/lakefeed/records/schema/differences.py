"""What became another between two reader's schemas, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

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
