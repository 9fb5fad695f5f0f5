"""Merges a writer's schema into the reader's schema: the result reads the records of both schemas.

The result is the smallest such schema. So merging a schema again changes nothing, and compatible versions may be merged
in any order. The order affects only defaults and the order of a union's members, which the earlier schema decides.

Fields and named types match if they have the same name, or if one name is an alias of the other. Records, enums and
fixed at the same place always match, and namespaces are ignored, as in Avro's resolution of records
(https://avro.apache.org/docs/1.12.0/specification/#schema-resolution). Members of unions match by full name first, and
by name without namespace only if the name is unique on both sides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.records.schema.avro import (
    ANY,
    NO_DEFAULT,
    NULL,
    AvroSchema,
    Container,
    Field,
    Named,
    Primitive,
    Ref,
    Type,
    Union,
    child_path,
    members,
    nullable,
    require_bounded,
    schema_json,
    short_name,
    type_kind,
    type_text,
    wider,
    with_null,
)
from lakefeed.records.schema.changes import Change, differences
from lakefeed.records.schema.parse import parse, refuse_same_but_for_case

_WRITER = ">"
"""The prefix of the names of the writer's types, in the mapping that has the reader's types, too."""
_NUMBERS = {"int", "long", "float", "double"}


@dataclass(frozen=True, kw_only=True)
class SchemaMerge:
    """The result of a merge.

    Attributes:
        schema: the new reader's schema (Avro JSON), which reads the records of both schemas.
        changes: the changes of the reader's schema; empty if ``schema`` only has new aliases, which do not change the
            table.
        left_out: the writer's new fields and renames that are not in ``schema`` because of ``grow=False``.
    """

    schema: str
    changes: tuple[Change, ...]
    left_out: tuple[Change, ...] = ()


def merge_schemas(reader: str, writer: str, *, grow: bool = True, times_are_numbers: bool = True) -> SchemaMerge:
    """Merge a writer's schema into the reader's schema.

    A field that only one of the two schemas has keeps its default; without a default, it becomes nullable with the
    default null. Types are widened as far as both Avro's resolution and Iceberg's columns allow.

    Args:
        reader: an Avro record schema (JSON), like ``writer``; its text stays unchanged if it already reads the writer's
            records.
        grow: False omits new fields and keeps the reader's names of renamed fields.
        times_are_numbers: whether a time is encoded as a number, as in Avro, so that a column can have both.

    Raises:
        SchemaIncompatible: no schema reads the records of both schemas; the error names the path and both types.
        ConfigError: one of the two schemas is not an Avro record schema.
    """
    before = parse(reader)
    merge = _Merge(parse(reader), parse(writer, prefix=_WRITER), grow=grow, times_are_numbers=times_are_numbers)
    after = merge.result()
    left_out = tuple(merge.left_out)
    if after == before:
        return SchemaMerge(schema=reader, changes=(), left_out=left_out)
    for named in after.types.values():  # The merge itself has checked only the types that both schemas have.
        refuse_same_but_for_case(named, short_name(named.name))
    try:
        require_bounded(after)
    except ConfigError as beyond:
        raise SchemaIncompatible(f"after the merge with the writer's schema, {beyond.what}", hint=beyond.hint) from None
    return SchemaMerge(schema=schema_json(after), changes=differences(before, after), left_out=left_out)


class _Merge:
    """Merges the schemas, and changes the types' definitions in place.

    Pairs of named types wait in a queue and are not merged by recursion, so a type may contain itself.
    """

    def __init__(self, reader: AvroSchema, writer: AvroSchema, *, grow: bool, times_are_numbers: bool) -> None:
        self._times_are_numbers = times_are_numbers
        self.left_out: list[Change] = []
        self._grow = grow
        self._types: dict[str, Named] = {**reader.types, **writer.types}
        self._both = AvroSchema(reader.root, self._types)
        self._unified: dict[str, str] = {}
        self._pairs: deque[tuple[Ref, Ref, str]] = deque()
        self._merge(reader.root, writer.root, "")
        self._unify_all()
        for key, named in reader.types.items():
            for name in (named.name, *named.aliases):
                other = writer.types.get(_WRITER + name)
                # Types with the same name match wherever they are used. An alias matches only if the writer has no type
                # with the reader's own name.
                apart = _WRITER + named.name in writer.types
                if other is not None and (name == named.name or (other.kind == named.kind and not apart)):
                    self._pairs.append((Ref(key), Ref(_WRITER + name), short_name(name)))
        self._unify_all()

    def result(self) -> AvroSchema:
        """Return the merged schema, without named types that it does not use."""
        used: dict[str, Named] = {}
        root = self._resolve(self._both.root, used)
        names = {named.name for named in used.values()}
        for named in used.values():
            named.aliases = [alias for alias in named.aliases if alias not in names]
        return AvroSchema(root, used)

    def _resolve(self, type_: Type, used: dict[str, Named]) -> Type:
        """Return a type that refers to named types by their names in the merged schema; add these types to ``used``."""
        match type_:
            case Container():
                return Container(type_.kind, self._resolve(type_.values, used))
            case Union():
                resolved = tuple(self._resolve(member, used) for member in type_.members)
                if len({*resolved}) < len(resolved):
                    what = "two members of a union are one type in the writer's schema: no column can hold both"
                    raise SchemaIncompatible(what, hint="write the new type into a field of another name")
                return Union(resolved)
            case Ref():
                named = self._look_up(type_)
                if named.name not in used:
                    used[named.name] = named
                    for field in named.fields:
                        field.type = self._resolve(field.type, used)
                return Ref(named.name)
        return type_

    def _key(self, ref: Ref) -> str:
        key = ref.key
        while key in self._unified:
            key = self._unified[key]
        return key

    def _look_up(self, ref: Ref) -> Named:
        return self._types[self._key(ref)]

    def _merge(self, ours: Type, other: Type, path: str) -> Type:
        ours_plain, other_plain = members(ours), members(other)
        if not ours_plain or not other_plain:
            plain = ours_plain or other_plain
        elif len(ours_plain) > 1:
            plain = self._merge_members(ours_plain, other_plain, path)
        elif len(other_plain) > 1:
            plain = (self._widen(ours_plain[0], other_plain, ours, other, path),)
        else:
            plain = (self._merge_single(ours_plain[0], other_plain[0], path),)
        null = nullable(ours) or nullable(other)
        if plain == ours_plain and null == nullable(ours):
            return ours
        if not null:
            return plain[0] if len(plain) == 1 else Union(plain)
        null_last = isinstance(ours, Union) and nullable(ours) and ours.members[0] != NULL
        return with_null(Union(plain), first=not null_last)

    def _widen(self, single: Type, others: tuple[Type, ...], ours: Type, other: Type, path: str) -> Type:
        """Return a type that reads all members of a writer's union; there is one only for numbers and for texts."""
        for member in others:
            both = wider(single, member)
            apart = not self._times_are_numbers and _is_plain(single) != _is_plain(member)
            if both is None or apart:
                raise self._incompatible(ours, other, path)
            single = both
        return single

    def _merge_members(self, ours: tuple[Type, ...], others: tuple[Type, ...], path: str) -> tuple[Type, ...]:
        """Merge the matching members of two unions, and append the writer's remaining members."""
        result = list(ours)
        free_ours, free_others = list(range(len(ours))), list(range(len(others)))

        def alone(one: Type, two: Type) -> bool:
            mine = sum(self._same_kind(ours[at], two) for at in free_ours)
            return (
                self._same_kind(one, two) and mine == sum(self._same_kind(one, others[at]) for at in free_others) == 1
            )

        rules: tuple[Callable[[Type, Type], bool], ...] = (
            lambda one, two: self._shares(one, two, lambda named: {named.name}),
            lambda one, two: self._shares(one, two, lambda named: {named.name, *named.aliases}),
            alone,
            lambda one, two: self._is_only_one(one, two, ours, others),
            lambda one, two: {type_kind(one), type_kind(two)} <= _NUMBERS and wider(one, two) is not None,
        )
        for belong_together in rules:
            for theirs in list(free_others):
                at = next((index for index in free_ours if belong_together(ours[index], others[theirs])), None)
                if at is not None:
                    free_ours.remove(at)
                    free_others.remove(theirs)
                    result[at] = self._merge_single(result[at], others[theirs], child_path(path, f"member{at}"))
        for theirs in free_others:
            if not self._grow:
                raise self._incompatible(Union(ours), others[theirs], path)
            result.append(others[theirs])
        return tuple(result)

    def _shares(self, ours: Type, other: Type, names: Callable[[Named], set[str]]) -> bool:
        if not isinstance(ours, Ref) or not isinstance(other, Ref):
            return False
        one, two = self._look_up(ours), self._look_up(other)
        return one.kind == two.kind and not names(one).isdisjoint(names(two))

    def _same_kind(self, ours: Type, other: Type) -> bool:
        if isinstance(ours, Ref) and isinstance(other, Ref):
            return self._shares(ours, other, lambda named: named.short_names)
        return type(ours) is type(other) and type_kind(ours) == type_kind(other)

    def _is_only_one(self, ours: Type, other: Type, *unions: tuple[Type, ...]) -> bool:
        """Return whether both are records and the only records of their unions; likewise for enums and fixed types."""
        if not isinstance(ours, Ref) or not isinstance(other, Ref):
            return False
        kind = self._look_up(ours).kind
        kinds = [[self._look_up(member).kind for member in union if isinstance(member, Ref)] for union in unions]
        return kind == self._look_up(other).kind and all(kinds_of.count(kind) == 1 for kinds_of in kinds)

    def _merge_single(self, ours: Type, other: Type, path: str) -> Type:
        match ours, other:
            case Ref(), Ref():
                self._pairs.append((ours, other, path))
                return ours
            case Container(), Container() if ours.kind == other.kind:
                return Container(ours.kind, self._merge(ours.values, other.values, child_path(path, ours.step)))
        return self._widen(ours, (other,), ours, other, path)

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
        logical = wider(ours.logical, other.logical)
        if (ours.kind, ours.size) != (other.kind, other.size) or logical is None:
            raise self._incompatible(one, two, path)
        self._unified[other_key] = key
        ours.logical = logical
        _add_missing(ours.aliases, [name for name in (other.name, *other.aliases) if name != ours.name])
        _add_missing(ours.symbols, other.symbols)
        self._unify_fields(ours, other, path)

    def _unify_fields(self, ours: Named, other: Named, path: str) -> None:
        pairs, mine, theirs = _pair_fields(ours.fields, other.fields)
        for own, field in pairs:
            if field.name != own.name and field.name not in own.aliases:
                own.aliases.append(own.name if self._grow else field.name)
                if self._grow:
                    own.name = field.name
                else:
                    self.left_out.append(Change("renamed", child_path(path, field.name), own.name, field.name))
            _add_missing(own.aliases, field.aliases)
        older = {alias: field.name for field in reversed(ours.fields) for alias in field.aliases}
        for field in theirs:
            self._add(field, ours, path, older)
        for own in mine:
            own.absent = True
            if own.default is NO_DEFAULT:
                own.type, own.default = with_null(own.type), None
        refuse_same_but_for_case(ours, path)
        names = {field.name for field in ours.fields}
        for own in ours.fields:
            own.aliases = [alias for alias in own.aliases if alias not in names]
        for own, field in pairs:
            if not members(own.type):
                # The reader's field could only be null, so use the writer's attributes.
                own.extra = {**field.extra, **own.extra}
            elif field.extra.get(ANY):
                own.extra = {**own.extra, ANY: True}
            own.type = self._merge(own.type, field.type, child_path(path, own.name))
            null_first = isinstance(own.type, Union) and own.type.members[0] == NULL
            if nullable(own.type) and own.default is not NO_DEFAULT and null_first != (own.default is None):
                # Avro requires that a default is a value of the union's first member.
                own.type = with_null(own.type, first=not null_first)

    def _add(self, field: Field, ours: Named, path: str, older: dict[str, str]) -> None:
        place = child_path(path, field.name)
        if taken := older.get(field.name):
            what = f"the new field {place} has a name that the field {taken} had before"
            hint = "give the new field a name that no field had before"
            raise SchemaIncompatible(what, where=f"record {ours.name}", hint=hint)
        if not self._grow:
            self.left_out.append(Change("added", place, None, type_text(field.type, self._both)))
        elif field.default is NO_DEFAULT:
            ours.fields.append(replace(field, type=with_null(field.type), default=None))
        else:
            ours.fields.append(replace(field))

    def _incompatible(self, ours: Type, other: Type, path: str) -> SchemaIncompatible:
        one, two = type_text(ours, self._both), type_text(other, self._both)
        what = (
            f"{path or 'the record'} is {one} in the reader's schema and {two} in the writer's: no column can hold both"
        )
        return SchemaIncompatible(what, where=path or None, hint="write the new type into a field of another name")


def _is_plain(type_: Type) -> bool:
    return isinstance(type_, Primitive) and type_.logical is None


def _pair_fields(ours: list[Field], others: list[Field]) -> tuple[list[tuple[Field, Field]], list[Field], list[Field]]:
    """Pair the fields of two records by names and aliases; return the pairs, and each record's remaining fields."""
    mine = {field.name: field for field in ours}
    theirs = {field.name: field for field in others}
    pairs = [(mine.pop(name), theirs.pop(name)) for name in [*theirs] if name in mine]
    known = {alias: field.name for field in reversed(mine.values()) for alias in field.aliases}
    pairs += [(mine.pop(known[name]), theirs.pop(name)) for name in [*theirs] if known.get(name) in mine]
    places = {name: at for at, name in enumerate(mine)}
    for field in list(theirs.values()):
        if older := [alias for alias in field.aliases if alias in mine]:
            pairs.append((mine.pop(min(older, key=places.__getitem__)), theirs.pop(field.name)))
    return pairs, list(mine.values()), list(theirs.values())


def _add_missing(present: list[str], names: list[str]) -> None:
    present.extend(name for name in dict.fromkeys(names) if name not in present)
