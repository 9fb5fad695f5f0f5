"""Generate random Avro schemas, later versions of them, and records.

One seed decides everything. The module encodes records byte by byte, because libraries would reject some of the
schemas.
"""

import copy
import itertools
import json
import random
import struct
from dataclasses import dataclass
from typing import Any

_PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "string", "bytes"]
_LOGICAL: list[dict[str, Any]] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    *(
        {"type": "long", "logicalType": f"{kind}timestamp-{unit}"}
        for kind in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    ),
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    {"type": "bytes", "logicalType": "big-decimal"},
    {"type": "string", "logicalType": "uuid"},
    # These logical types do not fit their types; a reader must ignore the logical type and use the type.
    {"type": "string", "logicalType": "date"},
    {"type": "int", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "date"},
    {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5},
    {"type": "bytes", "logicalType": "decimal"},
    {"type": "double", "logicalType": "nobody-knows-it"},
]
_FIXED: list[dict[str, Any]] = [
    {"size": 3},
    {"size": 0},
    {"size": 16, "logicalType": "uuid"},
    {"size": 12, "logicalType": "duration"},
    {"size": 4, "logicalType": "decimal", "precision": 9, "scale": 3},
    {"size": 2, "logicalType": "decimal", "precision": 30, "scale": 3},
]
_PROMOTED = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}
_ODD = ["a-b", "ä", "1st", "with space", "select", "'quoted'", "UPPER", "x/y", "日本"]
_ODDER = [*_ODD, "a`b", "a.b", 'a"b', "element", "value", "member0", "x" * 200]
_WRONG_DEFAULTS: list[Any] = [None, 0, "x", [], {}, 1.5, True, {"a": 1}, 2**70]
_TEXTS = ["", "a", "ä", "日本", "x" * 40, '"\\\n', "null"]
_DEPTH = 4
_DEEPEST_VALUE = 7


@dataclass(frozen=True)
class Pair:
    """The schemas and values that one seed generates."""

    seed: int
    writer: str
    reader: str
    payloads: list[bytes]

    def __str__(self) -> str:
        return f"seed {self.seed}\nwriter {self.writer}\nreader {self.reader}"


def pair(seed: int, *, odd_names: bool = True) -> Pair:
    """Return the pair of a seed; one in 20 pairs has up to 500 fields."""
    return Draw(seed, odd_names=odd_names).pair(seed)


class Draw:
    """A generator of schemas; a wild generator makes wrong defaults and field names that differ only in case."""

    def __init__(self, seed: int, *, odd_names: bool = True, wild: bool = False) -> None:
        self._chance = random.Random(seed)
        self._odd = odd_names
        self._wild = wild
        self._numbers = itertools.count()
        self._named: dict[str, dict[str, Any]] = {}

    def pair(self, seed: int) -> Pair:
        writer = self.record()
        reader = self.next(writer) if self._chance.random() < 0.8 else writer
        payloads = [self._value(writer, 0) for _ in range(8)]
        return Pair(seed, json.dumps(writer), json.dumps(reader), payloads)

    def record(self) -> Any:
        """Return a record schema, or a union of two records; most records have a few fields, some none or hundreds."""
        fields = self._chance.choice([0, 1, 3, 6, 10]) if self._chance.random() < 0.95 else self._chance.randrange(500)
        writer = self._record(fields, _DEPTH if fields < 20 else 1, [])
        if self._chance.random() < 0.05:
            return [writer, "null", self._record(2, 1, [])]
        return writer

    def next(self, version: Any) -> Any:
        """Return a later version, sometimes by an incompatible change."""
        return self._evolved(copy.deepcopy(version))

    def _name(self, prefix: str) -> str:
        if self._odd and self._chance.random() < 0.05:
            return f"{self._chance.choice(_ODD)}{next(self._numbers)}"
        return f"{prefix}{next(self._numbers)}"

    def _record(self, fields: int, depth: int, around: list[str]) -> Any:
        name = self._name("R")
        record: dict[str, Any] = {"type": "record", "name": name, "fields": []}
        if not self._named and self._chance.random() < 0.3:
            # Only the outermost record names a namespace, because the other types inherit the namespace.
            record["namespace"] = self._chance.choice(["n", "n.m"])
        self._named[name] = record
        inside = [*around, name] if fields else around
        for _ in range(fields):
            record["fields"].append({"name": self._name("f"), "type": self._type(depth - 1, inside)})
        return record

    def _type(self, depth: int, around: list[str], *, union: bool = True) -> Any:
        match self._chance.randrange(14 if depth > 0 else 7):
            case 0 | 1 | 2:
                return self._chance.choice(_PRIMITIVES)
            case 3 | 4:
                return dict(self._chance.choice(_LOGICAL))
            case 5:
                return self._enum()
            case 6:
                return self._fixed()
            case 7:
                return {"type": "array", "items": self._type(depth - 1, around)}
            case 8:
                return {"type": "map", "values": self._type(depth - 1, around)}
            case 9 | 10:
                return self._record(self._chance.randrange(4), depth, around)
            case 11 if around:
                return self._chance.choice([["null", around[-1]], {"type": "array", "items": around[-1]}])
            case _ if union:
                return self._union(depth, around)
        return "string"

    def _enum(self) -> dict[str, Any]:
        enum = {"type": "enum", "name": self._name("E"), "symbols": ["A", "B", "C"]}
        self._named[enum["name"]] = enum  # type: ignore[index]
        return enum

    def _fixed(self) -> dict[str, Any]:
        fixed = {"type": "fixed", "name": self._name("F"), **self._chance.choice(_FIXED)}
        self._named[fixed["name"]] = fixed
        return fixed

    def _union(self, depth: int, around: list[str]) -> list[Any]:
        members: list[Any] = []
        kinds: set[str] = set()
        for _ in range(self._chance.randrange(1, 5)):
            each = self._type(depth - 1, around, union=False)
            if isinstance(each, list):
                continue
            kind = each if isinstance(each, str) else each.get("name", each["type"])
            if kind not in kinds:
                kinds.add(kind)
                members.append(each)
        if not members:
            members = ["int"]
        if "null" not in kinds and self._chance.random() < 0.6:
            members.insert(self._chance.randrange(len(members) + 1), "null")
        return members

    def _evolved(self, schema: Any) -> Any:
        chance = self._chance
        if isinstance(schema, str):
            if schema in _PROMOTED and chance.random() < 0.4:
                return chance.choice(_PROMOTED[schema])
            if schema in _PRIMITIVES and chance.random() < 0.03:
                return chance.choice(_PRIMITIVES)
            return ["null", schema] if schema in _PRIMITIVES[1:] and chance.random() < 0.2 else schema
        if isinstance(schema, list):
            members = [each if isinstance(each, str) else self._evolved(each) for each in schema]
            members = [each for each in members if not isinstance(each, list)]
            if chance.random() < 0.3:
                chance.shuffle(members)
            if len(members) > 1 and chance.random() < 0.1:
                members.pop()
            return members or ["null"]
        match schema["type"]:
            case "array":
                return {**schema, "items": self._evolved(schema["items"])}
            case "map":
                return {**schema, "values": self._evolved(schema["values"])}
            case "enum":
                symbols = chance.choice([["A", "B", "C"], ["C", "X", "B", "A"], ["X", "B"]])
                default = {"default": symbols[0]} if chance.random() < 0.7 else {}
                return {**schema, "symbols": symbols, **default}
            case "record":
                return self._evolved_record(schema)
        return schema

    def _evolved_record(self, record: dict[str, Any]) -> dict[str, Any]:
        chance = self._chance
        fields = []
        defined = json.dumps(record)
        for field in record["fields"]:
            fate = chance.randrange(8)
            # Keep a field that defines a named type, because other fields may refer to the type.
            if fate == 0 and '"name"' not in json.dumps(field["type"]):
                continue
            renamed = {"name": self._name("g"), "aliases": [field["name"]]} if fate == 1 else {"name": field["name"]}
            kind = self._evolved(field["type"])
            if self._wild and isinstance(kind, dict) and chance.random() < 0.1:
                kind = ["null", kind]
            fields.append({**renamed, "type": kind})
        for _ in range(chance.randrange(3)):
            fields.append({"name": self._name("new"), **self._default()})
        if chance.random() < 0.03:
            fields.append({"name": self._name("required"), "type": "int"})
        if '"name"' not in defined[10:]:
            chance.shuffle(fields)
        if self._wild and fields and chance.random() < 0.1:
            field = chance.choice(fields)
            names = {each["name"] for each in fields}
            odd = chance.choice([field["name"].upper(), chance.choice(_ODDER)])
            fields += [{"name": odd, "type": "int"}] if odd not in names else []
            field["default"] = chance.choice(_WRONG_DEFAULTS)
        return {**record, "fields": fields}

    def _default(self) -> dict[str, Any]:
        point = {"type": "record", "name": self._name("P"), "fields": [
            {"name": "x", "type": "int"}, {"name": "y", "type": ["null", "string"], "default": None},
        ]}  # fmt: skip
        kinds: list[tuple[Any, Any]] = [
            ("int", 7),
            ("string", "ä"),
            ("boolean", True),
            ("double", 0.5),
            ("bytes", "\u00ff\u0001"),
            (["null", "string"], None),
            (["string", "null"], "x"),
            ({"type": "array", "items": "long"}, [1, 2]),
            ({"type": "array", "items": "string"}, []),
            ({"type": "map", "values": "string"}, {"k": "v"}),
            ({"type": "int", "logicalType": "date"}, 3),
            ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001\u0002"),
            ({"type": "enum", "name": self._name("D"), "symbols": ["U", "V"]}, "V"),
            ({"type": "fixed", "name": self._name("D"), "size": 2}, "ab"),
            (point, {"x": 1, "y": None}),
            ([{**point, "name": self._name("P")}, "null"], {"x": 1, "y": None}),
            ({"type": "array", "items": {**point, "name": self._name("P")}}, [{"x": 1, "y": None}]),
        ]
        kind, value = self._chance.choice(kinds)
        return {"type": kind, "default": value}

    def _value(self, schema: Any, depth: int) -> bytes:
        """Return the encoded bytes of a random value."""
        chance = self._chance
        if isinstance(schema, list):
            least = (
                schema.index("null") if depth > _DEEPEST_VALUE and "null" in schema else chance.randrange(len(schema))
            )
            return long_bytes(least) + self._value(schema[least], depth + 1)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            return self._value(self._named[schema], depth)
        match kind:
            case "null":
                return b""
            case "boolean":
                return bytes([chance.randrange(2)])
            case "int":
                return long_bytes(
                    chance.choice([0, -1, 20_000, 2**31 - 1, -(2**31), chance.randrange(-500_000, 500_000)])
                )
            case "long":
                return long_bytes(chance.choice([0, -1, 2**31, 2**62, chance.randrange(-(10**12), 10**12)]))
            case "float":
                return struct.pack("<f", chance.choice([0.0, -0.0, 1.5, float("nan"), float("inf"), 1e-40]))
            case "double":
                return struct.pack("<d", chance.choice([0.0, -0.0, 1.5, float("nan"), float("-inf"), 1e300, 0.1]))
            case "string":
                return text_bytes(chance.choice(_TEXTS).encode())
            case "bytes":
                # Use valid UTF-8, because a reader may read the bytes as a string, and 1 to a few bytes, because a
                # reader may read them as a decimal.
                return text_bytes(bytes(chance.randrange(1, 0x7F) for _ in range(chance.randrange(1, 4))))
            case "fixed":
                return bytes(chance.randrange(0x7F) for _ in range(schema["size"]))
            case "enum":
                return long_bytes(chance.randrange(len(schema["symbols"])))
            case "array" | "map":
                return self._items(schema, depth)
            case "record":
                return b"".join(self._value(field["type"], depth + 1) for field in schema["fields"])
        return self._value(kind, depth)

    def _items(self, schema: dict[str, Any], depth: int) -> bytes:
        chance = self._chance
        count = 0 if depth > _DEEPEST_VALUE else chance.choice([0, 1, 2, 3])
        inside = schema["items" if schema["type"] == "array" else "values"]
        made = []
        for at in range(count):
            key = text_bytes(f"k{at}".encode()) if schema["type"] == "map" else b""
            made.append(key + self._value(inside, depth + 1))
        if not made:
            return b"\0"
        match chance.randrange(3):
            case 0:
                blocks = long_bytes(count) + b"".join(made)
            case 1:
                blocks = b"".join(long_bytes(1) + each for each in made)
            case _:
                blocks = long_bytes(-count) + long_bytes(sum(map(len, made))) + b"".join(made)
        return blocks + b"\0"


def long_bytes(value: int) -> bytes:
    """Return Avro's encoding of an int or a long."""
    left = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def text_bytes(value: bytes) -> bytes:
    """Return Avro's encoding of a string or of bytes."""
    return long_bytes(len(value)) + value
