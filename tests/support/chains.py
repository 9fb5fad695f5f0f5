"""Generate chains of versions of one Avro schema; each version is a compatible change of the previous version.

Each field has a number ``uid``, which no change removes. Tests match the fields of two versions by this number, not by
their names.
"""

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

Json = Any
LEAVES: list[tuple[Json, Json]] = [
    ("boolean", True),
    ("int", 3),
    ("long", 4),
    ("float", 0.5),
    ("double", 1.5),
    ("string", "-"),
    ("bytes", "-"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "\x01"),
    ({"type": "string", "logicalType": "uuid"}, "4ae2b3dc-63f3-4d9e-a7f0-6ba1d4d6a0f4"),
]


class Chain:
    """A generator of versions; ``version`` is the newest version."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._numbers = itertools.count(1)
        self.version: Json = {"type": "record", "name": "Root", "fields": []}
        for _ in range(draw(st.integers(1, 4))):
            self._add(self.version)

    def change(self) -> None:
        """Replace the version by the next version."""
        self.version = copy.deepcopy(self.version)
        changes: list[Callable[[Json], None]] = [
            *(self._add, self._drop, self._rename_field, self._widen, self._optional, self._rename_type)
        ]
        record = self._draw(st.sampled_from(list(records(self.version))))
        self._draw(st.sampled_from(changes))(record)

    def _field(self, record: Json) -> Json | None:
        return self._draw(st.sampled_from(record["fields"])) if record["fields"] else None

    def _add(self, record: Json) -> None:
        type_, default = self._type(depth=0)
        field = {"name": f"f{next(self._numbers)}", "type": type_, "uid": next(self._numbers)}
        match self._draw(st.sampled_from(["bare", "default", "null"])):
            case "default" if default is not None:
                field["default"] = default
            case "null":
                field |= {"type": ["null", *type_] if isinstance(type_, list) else ["null", type_], "default": None}
        record["fields"].insert(self._draw(st.integers(0, len(record["fields"]))), field)

    def _type(self, depth: int) -> tuple[Json, Json]:
        kinds = ["leaf", "leaf", "enum", "fixed", "union", *(["record", "array", "map"] if depth < 2 else [])]
        number = next(self._numbers)
        match self._draw(st.sampled_from(kinds)):
            case "enum":
                return {"type": "enum", "name": f"E{number}", "symbols": ["A", "B"]}, "A"
            case "fixed":
                return {"type": "fixed", "name": f"X{number}", "size": 2}, "ab"
            case "union":
                return ["string", "int", {"type": "record", "name": f"U{number}", "fields": []}], "-"
            case "array":
                return {"type": "array", "items": self._type(depth + 1)[0]}, []
            case "map":
                return {"type": "map", "values": self._type(depth + 1)[0]}, {}
            case "record":
                record: Json = {"type": "record", "name": f"R{number}", "fields": []}
                for _ in range(self._draw(st.integers(0, 2))):
                    type_, _default = self._type(depth + 1)
                    record["fields"].append({"name": f"f{next(self._numbers)}", "type": type_, "uid": number})
                    number = next(self._numbers)
                return record, None
        return copy.deepcopy(self._draw(st.sampled_from(LEAVES)))

    def _drop(self, record: Json) -> None:
        if (field := self._field(record)) is not None:
            record["fields"].remove(field)

    def _rename_field(self, record: Json) -> None:
        if (field := self._field(record)) is not None:
            field["aliases"] = [*field.get("aliases", ()), field["name"]]
            field["name"] = f"f{next(self._numbers)}"

    def _widen(self, record: Json) -> None:
        if (field := self._field(record)) is not None:
            field["type"] = self._wider(field["type"])

    def _wider(self, type_: Json) -> Json:
        if isinstance(type_, str):
            return {"int": "long", "float": "double"}.get(type_, type_)
        if isinstance(type_, list):
            return [self._wider(each) for each in type_]
        match type_["type"]:
            case "array":
                return {**type_, "items": self._wider(type_["items"])}
            case "map":
                return {**type_, "values": self._wider(type_["values"])}
            case "enum":
                return {**type_, "symbols": [*type_["symbols"], f"S{next(self._numbers)}"]}
            case "bytes":
                return {**type_, "precision": type_["precision"] + 3}
        return type_

    def _optional(self, record: Json) -> None:
        field = self._field(record)
        if field is None or isinstance(field["type"], list):
            return
        inner = field["type"]
        if isinstance(inner, dict) and inner["type"] == "array" and not isinstance(inner["items"], list):
            field["type"] = {**inner, "items": ["null", inner["items"]]}
        elif "default" in field:
            field["type"] = [inner, "null"]
        else:
            field["type"] = ["null", inner]

    def _rename_type(self, record: Json) -> None:
        if record["name"] != "Root":
            record["name"] = f"R{next(self._numbers)}"


@st.composite
def chains(draw: st.DrawFn, *, most: int = 5) -> list[Json]:
    """Return the versions of a chain, oldest first."""
    chain = Chain(draw)
    versions = [chain.version]
    for _ in range(draw(st.integers(1, most - 1))):
        for _ in range(draw(st.integers(1, 3))):
            chain.change()
        versions.append(chain.version)
    return versions


def records(schema: Json) -> Iterator[Json]:
    """Yield all record schemas in a schema, the outermost first."""
    if isinstance(schema, list):
        for each in schema:
            yield from records(each)
    elif isinstance(schema, dict):
        if schema["type"] == "record":
            yield schema
            for field in schema["fields"]:
                yield from records(field["type"])
        for part in ("items", "values"):
            yield from records(schema.get(part))


def data(schema: Json) -> st.SearchStrategy[Any]:
    """Return a Hypothesis strategy for values of a schema, in fastavro's form."""
    if isinstance(schema, list):
        return st.one_of(*(data(each) if each != "null" else st.none() for each in schema))
    if isinstance(schema, str):
        return _OF_LEAF[schema]
    match schema["type"]:
        case "record":
            return st.fixed_dictionaries({each["name"]: data(each["type"]) for each in schema["fields"]})
        case "array":
            return st.lists(data(schema["items"]), max_size=2)
        case "map":
            return st.dictionaries(st.sampled_from("kl"), data(schema["values"]), max_size=2)
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "fixed":
            return st.binary(min_size=2, max_size=2)
        case "bytes":
            return st.decimals(0, 1_000_000, places=2)
        case "string":
            return st.uuids()
    raise ValueError(schema)


_OF_LEAF: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=3),
    "bytes": st.binary(max_size=3),
}
