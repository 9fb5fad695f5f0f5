"""Adds fields of JSON records to a schema that was guessed from earlier records (``on_unknown_field: evolve``)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakefeed.errors import ConfigError, SchemaIncompatible
from lakefeed.records.schema.avro import child_path
from lakefeed.records.schema.changes import Change, differences
from lakefeed.records.schema.parse import parse


@dataclass(frozen=True)
class GrownSchema:
    """A guessed schema with new fields.

    Attributes:
        changes: the new fields; empty if the sample has none. ``added`` has the outermost ones' paths.
        refused: the paths of fields that cannot become columns, with reasons.
    """

    schema: str
    changes: tuple[Change, ...]
    refused: Mapping[str, str]
    added: tuple[str, ...] = ()


def with_new_fields(
    schema: str, sample: Mapping[str, Any], *, without: Collection[str] = (), only: str | None = None
) -> GrownSchema:
    """Add the fields of a sample's guessed Avro schema that a guessed schema lacks, at all levels.

    Fields of the schema keep their types. A path names no level for the items of an array, as in the decoder's reasons.

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
        """Return a type whose records have names that the schema does not have yet."""
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
    """Return the records inside two types, which may be nullable or items of arrays; None for another type."""
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
