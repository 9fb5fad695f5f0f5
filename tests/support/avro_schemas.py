"""Random Avro schemas: a writer's, a reader's that it may evolve into, and data for the writer's."""

import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

_INTS = st.integers(-(2**31), 2**31 - 1)
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
_MOMENTS = st.datetimes(dt.datetime(1900, 1, 2), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))
_DATA: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": _INTS,
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": _TEXT,
    # Text too, since a reader may want a string of it.
    "bytes": _TEXT.map(str.encode),
    "date": st.dates(dt.date(1600, 1, 1), dt.date(2300, 1, 1)),
    "timestamp-millis": _MOMENTS.map(lambda moment: moment.replace(microsecond=0)),
    "timestamp-micros": _MOMENTS,
    "local-timestamp-millis": _MOMENTS.map(lambda moment: moment.replace(microsecond=0, tzinfo=None)),
    "local-timestamp-micros": _MOMENTS.map(lambda moment: moment.replace(tzinfo=None)),
    "decimal": st.decimals(Decimal("-999999.99"), Decimal("999999.99"), places=2),
}
_LOGICAL = [
    {"type": "int", "logicalType": "date"},
    *(
        {"type": "long", "logicalType": f"{kind}timestamp-{unit}"}
        for kind in ("", "local-")
        for unit in ("millis", "micros")
    ),
    {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2},
]
_PROMOTIONS = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}
_PRIMITIVES = ["boolean", "int", "long", "float", "double", "string", "bytes"]
_DEFAULTS = [
    ("int", 7),
    ("string", "ä"),
    ("boolean", True),
    ("double", 0.5),
    (["null", "string"], None),
    (["string", "null"], "x"),
    ({"type": "array", "items": "long"}, [1, 2]),
    ({"type": "map", "values": "string"}, {"k": "v"}),
    ({"type": "int", "logicalType": "date"}, 3),
]


@st.composite
def pairs(draw: Draw, *, fields: int) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """A writer's record schema, a reader's that resolves it, and records of the writer's."""
    names = itertools.count()
    writer = _record(draw, names, fields=fields, depth=2)
    reader = _evolved(draw, names, writer)
    return writer, reader, draw(st.lists(data(writer), min_size=8, max_size=16))


def _record(draw: Draw, names: Iterator[int], *, fields: int, depth: int) -> dict[str, Any]:
    kinds = [(f"f{next(names)}", _type(draw, names, depth)) for _ in range(fields)]
    return {
        "type": "record",
        "name": f"R{next(names)}",
        "fields": [{"name": name, "type": kind} for name, kind in kinds],
    }


def _type(draw: Draw, names: Iterator[int], depth: int) -> Any:
    choice = draw(st.integers(0, 9 if depth else 5))
    match choice:
        case 0 | 1 | 2:
            return draw(st.sampled_from(_PRIMITIVES))
        case 3:
            return draw(st.sampled_from(_LOGICAL))
        case 4:
            return {"type": "enum", "name": f"E{next(names)}", "symbols": ["A", "B", "C"]}
        case 5:
            return {"type": "fixed", "name": f"F{next(names)}", "size": 3}
        case 6:
            return {"type": "array", "items": _type(draw, names, depth - 1)}
        case 7:
            return {"type": "map", "values": _type(draw, names, depth - 1)}
        case 8:
            return _record(draw, names, fields=draw(st.integers(0, 3)), depth=depth - 1)
    several = [
        ["int", "long"],
        ["null", "double", "float"],
        ["null", "long", "string", _record(draw, names, fields=2, depth=0)],
        ["string", {"type": "array", "items": "int"}],
    ]
    inner = _type(draw, names, 0)
    return draw(st.sampled_from([["null", inner], [inner, "null"], *several]))


def _evolved(draw: Draw, names: Iterator[int], writer: Any) -> Any:
    match writer:
        case str() if writer in _PROMOTIONS and draw(st.booleans()):
            return draw(st.sampled_from(_PROMOTIONS[writer]))
        case list():
            return draw(st.permutations(writer))
        case {"type": "array"}:
            return {**writer, "items": _evolved(draw, names, writer["items"])}
        case {"type": "map"}:
            return {**writer, "values": _evolved(draw, names, writer["values"])}
        case {"type": "enum"}:
            symbols = draw(st.sampled_from([["A", "B", "C"], ["C", "X", "B", "A"], ["X", "B"]]))
            return {**writer, "symbols": symbols, "default": symbols[0]}
        case {"type": "record"}:
            return _evolved_record(draw, names, writer)
    if isinstance(writer, str) and draw(st.booleans()):
        return ["null", writer]
    return writer


def _evolved_record(draw: Draw, names: Iterator[int], writer: dict[str, Any]) -> dict[str, Any]:
    fields = []
    for field in writer["fields"]:
        fate = draw(st.integers(0, 5))
        if fate == 0:
            continue
        kind = _evolved(draw, names, field["type"])
        renamed = {"name": f"f{next(names)}", "aliases": [field["name"]]} if fate == 1 else {"name": field["name"]}
        fields.append({**renamed, "type": kind})
    if draw(st.booleans()):
        kind, value = draw(st.sampled_from(_DEFAULTS))
        fields.append({"name": f"f{next(names)}", "type": kind, "default": value})
    return {**writer, "fields": draw(st.permutations(fields))}


def data(schema: Any) -> st.SearchStrategy[Any]:
    """Generate values that fastavro writes with ``schema``."""
    match schema:
        case list():
            return st.one_of([data(branch) for branch in schema])
        case str():
            return _DATA[schema]
        case {"logicalType": kind}:
            return _DATA[kind]
        case {"type": "array", "items": items}:
            return st.lists(data(items), max_size=3)
        case {"type": "map", "values": values}:
            return st.dictionaries(_TEXT, data(values), max_size=3)
        case {"type": "enum", "symbols": symbols}:
            return st.sampled_from(symbols)
        case {"type": "fixed", "size": size}:
            return st.binary(min_size=size, max_size=size)
    return st.fixed_dictionaries({field["name"]: data(field["type"]) for field in schema["fields"]})
