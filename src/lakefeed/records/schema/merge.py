"""The reader's schema and one more writer's, joined: what reads the records of both, and what that changes.

The joined schema is the least upper bound of the two in the order "reads everything that … reads": joining again
changes nothing, and versions that are compatible with each other may come in any order. Only the text of defaults
and the order of a union's members depend on it: what was there first stays.

Fields and named types belong together if they have the same name or one is an alias of the other; records, enums
and fixed that stand at the same place do so whatever their names, and namespaces do not count, as in Avro's
resolution of records (https://avro.apache.org/docs/1.12.0/specification/#schema-resolution).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.records.schema.avro import (
    NO_DEFAULT,
    NULL,
    Array,
    AvroSchema,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Ref,
    Type,
    Union,
    described,
    members,
    nullable,
    require_bounded,
    short_name,
    wider,
    with_null,
    written,
)
from lakefeed.records.schema.changes import Change, differences
from lakefeed.records.schema.parse import parse, refuse_same_but_for_case

__all__ = ["Change", "SchemaIncompatible", "SchemaMerge", "merge_schemas"]

_WRITER = ">"
"""Before the keys of the writer's types: they share one mapping with the reader's."""


@dataclass(frozen=True, kw_only=True)
class SchemaMerge:
    """A writer's schema met the reader's.

    Attributes:
        schema: the reader's schema (Avro JSON) that reads the records of both.
        changes: what became another; empty if only aliases came, which the table does not show.
        left_out: fields of the writer that are not in ``schema`` (only with ``grow=False``).
    """

    schema: str
    changes: tuple[Change, ...]
    left_out: tuple[Change, ...] = ()


def merge_schemas(reader: str, writer: str, *, grow: bool = True) -> SchemaMerge:
    """Joins a writer's schema into the reader's.

    A field that one of the two lacks keeps its default, or else becomes optional with the default null. Types
    are widened as far as both Avro's resolution and an Iceberg column allow.

    Args:
        reader: Avro record schema (JSON).
        writer: Avro record schema (JSON).
        grow: False leaves new fields out and keeps the reader's names of renamed ones.

    Returns:
        ``reader`` itself, to the letter, if it reads the writer's records already.

    Raises:
        SchemaIncompatible: no schema reads both; names the path and both types.
        ConfigError: one of the two is no Avro record schema.
    """
    before = parse(reader)
    join = _Join(parse(reader), parse(writer, prefix=_WRITER), grow=grow)
    after = join.result()
    if after == before:
        return SchemaMerge(schema=reader, changes=(), left_out=tuple(join.left_out))
    for named in after.types.values():
        if isinstance(named, Record):  # Those that came with a new field were not joined with anything.
            refuse_same_but_for_case(named, short_name(named.name))
    try:
        require_bounded(after)
    except ConfigError as beyond:
        raise SchemaIncompatible(f"joined with the reader's, {beyond.what}", hint=beyond.hint) from None
    return SchemaMerge(schema=written(after), changes=differences(before, after), left_out=tuple(join.left_out))


class _Join:
    """Unifies the writer's types with the reader's, pair by pair, until nothing is left to unify.

    Definitions are changed in place, and pairs of named types wait in a queue: recursive types need no more care.
    """

    def __init__(self, reader: AvroSchema, writer: AvroSchema, *, grow: bool) -> None:
        self.left_out: list[Change] = []
        self._grow = grow
        self._types: dict[str, Named] = {**reader.types, **writer.types}
        self._both = AvroSchema(reader.root, self._types)
        self._joined: dict[str, str] = {}
        self._pairs: deque[tuple[Ref, Ref, str]] = deque()
        self._join(reader.root, writer.root, "")
        self._unify_all()
        for key, named in reader.types.items():
            for name in (named.name, *named.aliases):
                theirs = writer.types.get(_WRITER + name)
                # One schema can define a name only once, wherever it is used.
                if theirs is not None and (name == named.name or type(theirs) is type(named)):
                    self._pairs.append((Ref(key), Ref(_WRITER + name), short_name(name)))
        self._unify_all()

    def result(self) -> AvroSchema:
        """The joined schema, with only those types that it uses."""
        used: dict[str, Named] = {}
        root = self._resolved(self._both.root, used)
        names = {each.name for each in used.values()}
        for each in used.values():
            each.aliases = [alias for alias in each.aliases if alias not in names]
        return AvroSchema(root, used)

    def _resolved(self, type_: Type, used: dict[str, Named]) -> Type:
        match type_:
            case Array():
                return Array(self._resolved(type_.items, used))
            case Map():
                return Map(self._resolved(type_.values, used))
            case Union():
                return Union(tuple(self._resolved(each, used) for each in type_.members))
            case Ref():
                named = self._types[self._key(type_)]
                if named.name not in used:
                    used[named.name] = named
                    for each in named.fields if isinstance(named, Record) else ():
                        each.type = self._resolved(each.type, used)
                return Ref(named.name)
        return type_

    def _key(self, ref: Ref) -> str:
        key = ref.key
        while key in self._joined:
            key = self._joined[key]
        return key

    def _join(self, ours: Type, other: Type, path: str) -> Type:
        ours_plain, other_plain = members(ours), members(other)
        if not ours_plain or not other_plain:
            plain = ours_plain or other_plain
        elif len(ours_plain) == 1:
            plain = (self._join_all(ours_plain[0], other_plain, ours, other, path),)
        else:
            plain = self._join_members(ours_plain, other_plain, path)
        null = nullable(ours) or nullable(other)
        if plain == ours_plain and null == nullable(ours):
            return ours
        if not null:
            return plain[0] if len(plain) == 1 else Union(plain)
        null_last = isinstance(ours, Union) and nullable(ours) and ours.members[0] != NULL
        return with_null(Union(plain), first=not null_last)

    def _join_all(self, one: Type, others: tuple[Type, ...], ours: Type, other: Type, path: str) -> Type:
        """A single type and what a writer has there: of a union only numbers and texts can all be one column."""
        if len(others) == 1:
            return self._join_single(one, others[0], path)
        for each in others:
            joined = wider(one, each) if isinstance(one, Primitive) and isinstance(each, Primitive) else None
            if joined is None:
                raise self._incompatible(ours, other, path)
            one = joined
        return one

    def _join_members(self, ours: tuple[Type, ...], others: tuple[Type, ...], path: str) -> tuple[Type, ...]:
        """Members of unions: joined where they belong together, appended where not."""
        result = list(ours)
        free_ours, free_others = list(range(len(ours))), list(range(len(others)))
        for belong in (self._same_kind, self._alone_of_its_kind, _both_numbers):
            for theirs in list(free_others):
                at = next((index for index in free_ours if belong(ours[index], others[theirs], ours, others)), None)
                if at is not None:
                    free_ours.remove(at)
                    free_others.remove(theirs)
                    result[at] = self._join_single(result[at], others[theirs], _below(path, f"member{at}"))
        for theirs in free_others:
            if not self._grow:
                raise self._incompatible(Union(ours), others[theirs], path)
            result.append(others[theirs])
        return tuple(result)

    def _same_kind(self, ours: Type, other: Type, _ours: tuple[Type, ...], _others: tuple[Type, ...]) -> bool:
        if isinstance(ours, Primitive) and isinstance(other, Primitive):
            return ours.name == other.name
        if isinstance(ours, Ref) and isinstance(other, Ref):
            one, two = self._named(ours), self._named(other)
            names = {short_name(one.name), *map(short_name, one.aliases)}
            return type(one) is type(two) and not names.isdisjoint(map(short_name, (two.name, *two.aliases)))
        return type(ours) is type(other)

    def _alone_of_its_kind(self, ours: Type, other: Type, *unions: tuple[Type, ...]) -> bool:
        """The only record of both unions is the same one, whatever its name; likewise enum and fixed."""
        if not isinstance(ours, Ref) or not isinstance(other, Ref):
            return False
        kind = type(self._named(ours))
        return kind is type(self._named(other)) and all(
            sum(isinstance(each, Ref) and type(self._named(each)) is kind for each in union) == 1 for union in unions
        )

    def _join_single(self, ours: Type, other: Type, path: str) -> Type:
        if isinstance(ours, Ref) and isinstance(other, Ref):
            self._pairs.append((ours, other, path))
            return ours
        if isinstance(ours, Array) and isinstance(other, Array):
            return Array(self._join(ours.items, other.items, _below(path, "element")))
        if isinstance(ours, Map) and isinstance(other, Map):
            return Map(self._join(ours.values, other.values, _below(path, "value")))
        joined = wider(ours, other) if isinstance(ours, Primitive) and isinstance(other, Primitive) else None
        if joined is None:
            raise self._incompatible(ours, other, path)
        return joined

    def _unify_all(self) -> None:
        while self._pairs:
            self._unify(*self._pairs.popleft())

    def _unify(self, one: Ref, two: Ref, path: str) -> None:
        key, other_key = self._key(one), self._key(two)
        if key == other_key:
            return
        if key.startswith(_WRITER) and not other_key.startswith(_WRITER):
            key, other_key = other_key, key
        ours, other = self._types[key], self._types[other_key]
        self._joined[other_key] = key
        _add_missing(ours.aliases, [each for each in (other.name, *other.aliases) if each != ours.name])
        if isinstance(ours, Record) and isinstance(other, Record):
            self._unify_fields(ours, other, path)
        elif isinstance(ours, Enum) and isinstance(other, Enum):
            _add_missing(ours.symbols, other.symbols)
        elif isinstance(ours, Fixed) and isinstance(other, Fixed) and ours.size == other.size:
            logical = wider(ours.logical, other.logical)
            if logical is None:
                raise self._incompatible(one, two, path)
            ours.logical = logical
        else:
            raise self._incompatible(one, two, path)

    def _unify_fields(self, ours: Record, other: Record, path: str) -> None:
        pairs, mine, theirs = _paired(ours.fields, other.fields)
        for found, field in pairs:
            if field.name != found.name and field.name not in found.aliases:
                self._rename(found, field, path)
            _add_missing(found.aliases, field.aliases)
        older = {alias: each.name for each in reversed(ours.fields) for alias in each.aliases}
        for field in theirs:
            self._add(field, ours, path, older)
        for found in mine:
            found.absent = True
            if found.default is NO_DEFAULT:
                found.type, found.default = with_null(found.type), None
        names = {each.name for each in ours.fields}
        refuse_same_but_for_case(ours, path)
        for found in ours.fields:
            found.aliases = [alias for alias in found.aliases if alias not in names]
        for found, field in pairs:
            if not members(found.type):
                # Nothing but null so far: what is said of the field is the writer's.
                found.extra = {**field.extra, **found.extra}
            found.type = self._join(found.type, field.type, _below(path, found.name))
            null_first = isinstance(found.type, Union) and found.type.members[0] == NULL
            if nullable(found.type) and found.default is not NO_DEFAULT and null_first != (found.default is None):
                # A default belongs to the union's first member.
                found.type = with_null(found.type, first=not null_first)

    def _rename(self, found: Field, field: Field, path: str) -> None:
        if not self._grow:
            found.aliases.append(field.name)
            self.left_out.append(Change("renamed", _below(path, field.name), found.name, field.name))
            return
        found.aliases.append(found.name)
        found.name = field.name

    def _add(self, field: Field, ours: Record, path: str, older: dict[str, str]) -> None:
        place = _below(path, field.name)
        if taken := older.get(field.name):
            raise SchemaIncompatible(
                f"the name {place} is given to another field: it is an older name of {taken}",
                where=f"record {ours.name}",
                hint="give the new field a name that no field had before",
            )
        if not self._grow:
            self.left_out.append(Change("added", place, None, described(field.type, self._both)))
        elif field.default is NO_DEFAULT:
            ours.fields.append(replace(field, type=with_null(field.type), default=None))
        else:
            ours.fields.append(replace(field))

    def _named(self, ref: Ref) -> Named:
        return self._types[self._key(ref)]

    def _incompatible(self, ours: Type, other: Type, path: str) -> SchemaIncompatible:
        words = described(ours, self._both), described(other, self._both)
        return SchemaIncompatible(
            f"{path or 'the record'} is {words[0]} so far and {words[1]} for the writer: no column holds both",
            where=path or None,
            hint="write the new type into a field of another name",
        )


def _both_numbers(ours: Type, other: Type, _ours: tuple[Type, ...], _others: tuple[Type, ...]) -> bool:
    numbers = {"int", "long", "float", "double"}
    if not isinstance(ours, Primitive) or not isinstance(other, Primitive) or not {ours.name, other.name} <= numbers:
        return False
    return wider(ours, other) is not None


def _paired(ours: list[Field], others: list[Field]) -> tuple[list[tuple[Field, Field]], list[Field], list[Field]]:
    """Fields that belong together, and what is left of each side: by name, then by our aliases, then by theirs."""
    mine = {each.name: each for each in ours}
    theirs = {each.name: each for each in others}
    pairs: list[tuple[Field, Field]] = []

    def pair(found: Field, field: Field) -> None:
        pairs.append((found, field))
        del mine[found.name], theirs[field.name]

    for field in others:
        if field.name in mine:
            pair(mine[field.name], field)
    known = {alias: each for each in reversed(mine.values()) for alias in each.aliases}
    for field in list(theirs.values()):
        found = known.get(field.name)
        if found is not None and found.name in mine:
            pair(found, field)
    places = {each.name: at for at, each in enumerate(ours)}
    for field in list(theirs.values()):
        if older := [alias for alias in field.aliases if alias in mine]:
            pair(mine[min(older, key=places.__getitem__)], field)
    return pairs, list(mine.values()), list(theirs.values())


def _add_missing(there: list[str], names: list[str]) -> None:
    there.extend(name for name in dict.fromkeys(names) if name not in there)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
