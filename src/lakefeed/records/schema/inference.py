"""Guesses a schema from JSON records, and reports the values that do not fit it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakefeed.clients.kafka.records import read_ranges
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing, SchemaIncompatible
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.schema.avro import DEEPEST, MOST_COLUMNS, PRIMITIVES, child_path
from lakefeed.records.schema.changes import Change, differences
from lakefeed.records.schema.ddl import column_sql
from lakefeed.records.schema.fit import columns_of
from lakefeed.records.schema.parse import parse

_LONG = range(-(2**63), 2**63)
_DECIMAL = range(-(10**38) + 1, 10**38)
_LONGEST_NAME = 200
_DEEPEST = DEEPEST - 2
"""The deepest level with columns of its own. The schema has two more: the record, and the text with deeper values."""
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS = {type(None): "null", bool: "boolean", float: "double", str: "string", list: "array", dict: "object"}
_DECIMAL_TYPE = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}


@dataclass(frozen=True)
class TypeConflict:
    """A path at which values of the sample do not fit the guessed schema, or do not show a type."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" if self.path else self.what


@dataclass(frozen=True, kw_only=True)
class InferredSchema:
    """A schema that was guessed from a number of ``records``.

    Attributes:
        ddl: the columns as Spark DDL; all are optional, because a sample cannot prove that a field is always present.
        avro: the same columns as an Avro record schema, even if Avro does not allow their names.
    """

    records: int
    ddl: str
    avro: dict[str, Any]
    conflicts: tuple[TypeConflict, ...]


def infer_schema(values: Iterable[bytes], *, name: str = "Value", careful: bool = False) -> InferredSchema:
    """Guess the schema of JSON objects: a field has the type of most of its values.

    If a field has whole numbers and fractions, it becomes a double. Any other difference of types is a conflict:
    records with the rarer types cannot be decoded, and become dead letters. More than 10,000 different fields are a
    ConfigError.

    If ``careful``, a field without a value other than null is left out, and a field with values of several types is
    text, so that no record becomes a dead letter because of that field.
    """
    sample, records = _Sample(), 0
    broken: Counter[str] = Counter()
    for value in values:
        records += 1
        try:
            # Decode as UTF-8 first, because json.loads would also accept bytes in UTF-16.
            document = json.loads(value.decode("utf-8-sig"), object_pairs_hook=_fields, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            broken[str(error) if isinstance(error, _DuplicateError) else "no JSON in UTF-8"] += 1
            continue
        if isinstance(document, dict):
            sample.add(sample.root, document, 0, "")
        else:
            broken["not an object"] += 1
    conflicts = [TypeConflict("", f"{count} of {records} records: {why}") for why, count in broken.items()]
    if sample.has_nameless:
        conflicts.append(TypeConflict("", "a field with the empty name is left out: no column can have it"))
    guess = _Guess(conflicts, careful=careful)
    avro = guess.record(sample.root, name, "")
    if odd := sorted(name for name in guess.names if not _AVRO_NAME.fullmatch(name)):
        shown = ", ".join(name[:50] for name in odd[:5])
        conflicts.append(TypeConflict("", f"Avro's own tools refuse the Avro schema because of the names {shown}"))
    ddl = ", ".join(column_sql((column.name,), column.dataType) for column in columns_of(json.dumps(avro)).fields)
    return InferredSchema(records=records, ddl=ddl, avro=avro, conflicts=tuple(conflicts))


class _DuplicateError(ValueError):
    """An object has two fields of one name."""


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        name.encode()  # This raises a ValueError for half of a surrogate pair.
        if name in fields:
            raise _DuplicateError(f"the field {name} occurs twice")
        fields[name] = value
    return fields


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@dataclass
class _Place:
    """The values at one path of the sample."""

    kinds: Counter[str] = field(default_factory=Counter)
    fields: dict[str, _Place] = field(default_factory=dict)
    items: _Place | None = None

    @property
    def has_value(self) -> bool:
        """Return whether a record has a value at this path or below; null and empty objects and arrays do not count."""
        if self.kinds.keys() - {"null", "object", "array"}:
            return True
        inner = [*self.fields.values(), *([self.items] if self.items else [])]
        return any(each.has_value for each in inner)


class _Sample:
    """The types of the values of all records, as a tree of paths."""

    def __init__(self) -> None:
        self.root = _Place()
        self.has_nameless = False
        self._count = 0

    def add(self, place: _Place, value: Any, depth: int, path: str) -> None:
        if depth > _DEEPEST:
            # A table cannot have more levels: values below become JSON text in a STRING column.
            place.kinds["string"] += 1
            return
        place.kinds[_kind(value)] += 1
        if isinstance(value, dict):
            for name, inner in value.items():
                if not name:
                    self.has_nameless = True
                    continue
                if name not in place.fields:
                    self._count += 1
                    place.fields[name] = _Place()
                if self._count > MOST_COLUMNS:
                    what = f"the records have more than {MOST_COLUMNS:,} different fields, too many for columns"
                    hint = "if the names are data, such as ids, give schema_ddl with a MAP<STRING, …> for these fields"
                    raise ConfigError(what, where=path or None, hint=hint)
                self.add(place.fields[name], inner, depth + 1, child_path(path, name))
        elif isinstance(value, list):
            place.items = place.items or _Place()
            for item in value:
                self.add(place.items, item, depth + 1, child_path(path, "element"))


def _kind(value: Any) -> str:
    if type(value) is int:
        # Numbers with more digits need a STRING column.
        return "long" if value in _LONG else "decimal" if value in _DECIMAL else "string"
    return _KINDS[type(value)]


class _Guess:
    """Chooses the Avro type for each path of the sample, and collects the conflicts."""

    def __init__(self, conflicts: list[TypeConflict], *, careful: bool) -> None:
        self._conflicts, self._careful = conflicts, careful
        self.names: set[str] = set()
        self._records = Counter(PRIMITIVES)

    def record(self, place: _Place, name: str, path: str) -> dict[str, Any]:
        name = self._unused_name(name)
        spellings: dict[str, str] = {}
        for column in place.fields:
            if (other := spellings.setdefault(column.lower(), column)) != column:
                what = f"differs from {other} only in case: Spark treats both as one column"
                self._conflicts.append(TypeConflict(child_path(path, column), what))
        self.names.update(place.fields)
        fields = [
            {"name": column, "type": ["null", self._type(inner, child_path(path, column))], "default": None}
            for column, inner in place.fields.items()
            if inner.has_value or not self._careful
        ]
        return {"type": "record", "name": name, "fields": fields}

    def _type(self, place: _Place, path: str) -> Any:
        kind = self._choose_kind(place, path)
        if kind == "object":
            return self.record(place, re.sub(r"\W", "_", path, flags=re.ASCII)[-_LONGEST_NAME:], path)
        if kind == "array":
            items = self._type(place.items or _Place(), child_path(path, "element"))
            return {"type": "array", "items": ["null", items]}
        return _DECIMAL_TYPE if kind == "decimal" else kind

    def _choose_kind(self, place: _Place, path: str) -> str:
        kinds = +place.kinds
        kinds.pop("null", None)
        reals = kinds.keys() & {"double", "decimal"}
        if len(reals) == 1:
            kinds[reals.pop()] += kinds.pop("long", 0)
        (most, count), *others = kinds.most_common() or [("null", 0)]
        what = None
        if others:
            rest = ", ".join(f"{number} times {kind}" for kind, number in others)
            what = f"{count} times {most}, but {rest}, which this schema cannot decode"
        elif most == "null":
            what = "the sample has no value: STRING is a guess"
        elif most == "object" and not place.fields:
            what = "the sample has only empty objects: STRING, for the JSON, is a guess"
        if what is not None:
            self._conflicts.append(TypeConflict(path, what))
        if others and self._careful:
            return "string"
        return "string" if most == "null" or (most == "object" and not place.fields) else most

    def _unused_name(self, name: str) -> str:
        """Return a unique record name: paths that differ only in special characters would give the same name."""
        name = f"_{name}" if name[:1].isdigit() else name
        self._records[name] += 1
        return name if self._records[name] == 1 else f"{name}__{self._records[name]}"


def newest_values(source: KafkaSource, *, records: int) -> list[bytes]:
    """Return the newest non-null values, about as many of each partition; raise ResourceMissing without records."""
    ranges = list(newest_ranges(source, records))
    if not any(span.records for span in ranges):
        topics = ", ".join(sorted({span.topic for span in ranges})) or source.topics_pattern
        what = f"no schema can be guessed: {topics} has no records yet"
        hint = "try again when the topic has records, or give schema_ddl"
        raise ResourceMissing(what, where=source.bootstrap_servers, hint=hint)
    return [record.value for record in read_ranges(source, ranges) if record.value is not None]


def newest_ranges(source: KafkaSource, records: int) -> Iterator[OffsetRange]:
    """Yield ranges at the ends of the partitions, with at most ``records`` offsets, about as many in each."""
    cluster = Topics(source.bootstrap_servers, options=source.client_options)
    names = source.topics or [name for name in cluster.list() if source.reads(name)]
    partitions = [(name, partition) for name in names for partition in cluster.describe(name).partitions]
    filled = sum(partition.end_offset > partition.start_offset for _, partition in partitions)
    share = max(1, records // max(1, filled))
    left = records
    for name, partition in partitions:
        take = min(share, left, partition.end_offset - partition.start_offset)
        left -= take
        yield OffsetRange(name, partition.id, partition.end_offset - take, partition.end_offset)


@dataclass(frozen=True)
class GrownSchema:
    """A guessed schema with new fields.

    Attributes:
        changes: the new fields; empty if the sample has none. ``added`` has the paths of the outermost new fields.
        refused: the paths of fields that cannot become columns, with reasons.
    """

    schema: str
    changes: tuple[Change, ...]
    refused: Mapping[str, str]
    added: tuple[str, ...] = ()


def with_new_fields(
    schema: str, sample: Mapping[str, Any], *, without: Collection[str] = (), only: str | None = None
) -> GrownSchema:
    """Add to a guessed schema, at all levels, the fields that only a sample's guessed schema has.

    Fields of the schema keep their types. As in the decoder's reasons, a path has no step for the items of an array.

    Args:
        schema: a guessed schema, perhaps with fields from earlier calls.
        sample: ``InferredSchema.avro`` of later records.
        without: paths of fields to leave out.
        only: the path of the only field to add; None for all.
    """
    document = json.loads(schema)
    growth = _Growth(without, only, set(_record_names(document)))
    growth.grow(document, sample, "")
    grown = json.dumps(document)
    try:
        changes = differences(parse(schema), parse(grown))
    except (ConfigError, SchemaIncompatible) as unusable:
        # The whole schema exceeds a limit, such as the number of columns.
        return GrownSchema(schema, (), {**growth.refused, **dict.fromkeys(growth.added, unusable.what)})
    return GrownSchema(grown, changes, growth.refused, tuple(growth.added))


@dataclass
class _Growth:
    without: Collection[str]
    only: str | None
    names: set[str]
    added: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def grow(self, ours: dict[str, Any], theirs: Mapping[str, Any], path: str) -> None:
        """Add the fields of the record ``theirs`` to the record ``ours``."""
        known = {each["name"]: each for each in ours["fields"]}
        spellings = {name.lower(): name for name in known}
        for new in theirs["fields"]:
            name, place = new["name"], child_path(path, new["name"])
            if name in known:
                mine, other = _record_in(known[name]["type"], new["type"])
                if mine is not None and other is not None:
                    self.grow(mine, other, place)
            elif (same := spellings.get(name.lower())) is not None:
                self.refused[place] = f"differs from the column {same} only in case"
            elif place not in self.without and self.only in (None, place):
                ours["fields"].append({**new, "type": self._renamed(new["type"])})
                spellings[name.lower()] = name
                self.added.append(place)

    def _renamed(self, type_: Any) -> Any:
        """Return the same type with new names for its records, which the schema does not have yet."""
        if isinstance(type_, list):
            return [self._renamed(each) for each in type_]
        if not isinstance(type_, dict) or type_["type"] not in ("record", "array"):
            return type_
        if type_["type"] == "array":
            return {**type_, "items": self._renamed(type_["items"])}
        name, number = type_["name"], 1
        while name in self.names:
            number += 1
            name = f"{re.sub(r'__[0-9]+$', '', type_['name'])}__{number}"
        self.names.add(name)
        fields = [{**each, "type": self._renamed(each["type"])} for each in type_["fields"]]
        return {**type_, "name": name, "fields": fields}


def _record_in(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Return the record inside each of two types, below null and arrays; None for a type without a record there."""
    ours, theirs = _not_null(ours), _not_null(theirs)
    while isinstance(ours, dict) and isinstance(theirs, dict) and ours["type"] == theirs["type"] == "array":
        ours, theirs = _not_null(ours["items"]), _not_null(theirs["items"])
    found = [each if isinstance(each, dict) and each["type"] == "record" else None for each in (ours, theirs)]
    return found[0], found[1]


def _not_null(type_: Any) -> Any:
    return next((each for each in type_ if each != "null"), "null") if isinstance(type_, list) else type_


def _record_names(type_: Any) -> Iterator[str]:
    if isinstance(type_, list):
        for each in type_:
            yield from _record_names(each)
    elif isinstance(type_, dict) and type_["type"] == "array":
        yield from _record_names(type_["items"])
    elif isinstance(type_, dict) and type_["type"] == "record":
        yield type_["name"]
        for each in type_["fields"]:
            yield from _record_names(each["type"])
