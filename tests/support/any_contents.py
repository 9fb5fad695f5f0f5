"""Generate schema versions in any format, and records with values at and beyond the limits of their types, from a seed.

The records are those of a broken producer: bytes of another version, numbers that are no date, a text in place of a
number. ``any_schemas`` generates odder Avro schemas; here all formats have the same kinds of fields.
"""

from __future__ import annotations

import io
import json
import random
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import fastavro

UUID = "123e4567-e89b-12d3-a456-426614174000"
FIRST = {"ident": "int", "u": "text", "f": "bytes", "zone": "text", "at": "moment", "amount": "decimal"}
KINDS = [
    *("int", "long", "float", "double", "bool", "text", "bytes", "decimal", "date", "moment", "enum", "list", "map"),
    *("record", "choice", "self"),
]
ODD_NAMES = ["_pos", "IDENT", "kafka_offset", "lakefeed_deleted", "select", "element", "_lakefeed", "decoded_key"]
ODD_TEXTS = ["${env:HOME}", "ident.x", "a b", "ä", "a`b", 'a"b', "x" * 300]
SAFE: dict[str, Any] = {
    "u": UUID,
    "f": b"abcd",
    "int": 7,
    "long": 7,
    "float": 1.5,
    "double": 1.5,
    "bool": True,
    "text": "a",
    "bytes": b"x",
    "decimal": b"\7",
    "date": 7,
    "moment": 7,
    "enum": "A",
    "list": [7],
    "map": {"a": 7},
    "record": {"x": 7, "y": "a"},
    "choice": "a",
    "self": None,
}
INTS = [0, 1, -1, 7, 2**31 - 1, -(2**31)]
LONGS = [*INTS, 2**53 + 1, 2**63 - 1, -(2**63), 253_402_300_800_000_000, -62_135_596_800_000_001]
FLOATS = [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7e308]
TEXTS = ["", "a", "b", "no uuid", UUID, UUID.upper(), "é\0\n", "${foo}", "long" * 500, "'", "日本"]
BYTES = [b"", b"abcd", b"x", b"\xff" * 4, b"\x7f" * 40, bytes(300)]
WRONG: list[Any] = [
    None,
    True,
    7,
    -1.5,
    2**31,
    2**70,
    10**400,
    "7",
    "text",
    [],
    [1],
    {},
    {"a": {"b": None}},
    "9999-99-99",
]


@dataclass
class Contents(ABC):
    """The schema versions and records of one feed."""

    seed: int
    random: random.Random = field(init=False)
    fields: dict[str, str] = field(init=False)
    base: dict[str, str] = field(init=False)
    fits: bool = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.fields = self.base = dict(FIRST)
        self.fits = True

    def next(self) -> None:
        """Begin the next version: add, drop or rename fields; a changed type or an odd name lasts for one version."""
        if self.fits:
            self.base = self.fields
        self.fields, self.fits = dict(self.base), True
        for _ in range(self.random.randint(1, 3)):
            own = sorted(self.fields.keys() - FIRST.keys())
            match self.random.randrange(8):
                case 0 if own:
                    del self.fields[self.random.choice(own)]
                case 1:
                    name = self.random.choice(sorted(self.fields.keys() - {"ident"}))
                    self.fields[name] = self.random.choice(KINDS)
                    self.fits = False
                case 2:
                    self.fields[self.random.choice(self.odd_names())] = self.random.choice(KINDS)
                    self.fits = False
                case 3 if own:
                    name = self.random.choice(own)
                    self.fields[f"{name}_{self.random.randrange(99)}"[:60]] = self.fields.pop(name)
                case _:
                    self.fields[f"f{self.random.randrange(999)}"] = self.random.choice(KINDS)

    def odd_names(self) -> list[str]:
        return ODD_NAMES

    def text(self) -> str:
        """Return the text of this version's schema; empty for a format without schemas."""
        return ""

    @abstractmethod
    def record(self) -> bytes:
        """Return a record of this version, or broken bytes."""

    def row(self) -> dict[str, Any]:
        """Return the values of a record: half of the records have values at the limits of their types."""
        wild = self.random.random() < 0.5
        safe = {
            name: SAFE[name if FIRST.get(name) == kind and name in SAFE else kind] for name, kind in self.fields.items()
        }
        row = {name: self.value(kind) for name, kind in self.fields.items()} if wild else safe
        return {**row, "ident": self.random.randrange(10)}

    def value(self, kind: str) -> Any:
        """Return a value of a kind, often a value at the kind's limit."""
        pick = self.random.choice
        match kind:
            case "int" | "date":
                return pick(INTS)
            case "long" | "moment":
                return pick(LONGS)
            case "float" | "double":
                return pick(FLOATS)
            case "bool":
                return pick([True, False])
            case "bytes" | "decimal":
                return pick(BYTES)
            case "list":
                return [pick(LONGS) for _ in range(pick([0, 1, 50]))]
            case "map":
                return {pick(TEXTS): pick(LONGS) for _ in range(pick([0, 1, 5]))}
            case "record":
                return {"x": pick(INTS), "y": pick(TEXTS)}
            case "choice":
                return pick([None, pick(TEXTS), pick(LONGS)])
            case "enum":
                return pick(["A", "B"])
        return pick(TEXTS)


class Avro(Contents):
    def text(self) -> str:
        return json.dumps(self._schema(logical=True))

    def _schema(self, *, logical: bool) -> Any:
        fields = []
        for at, (name, kind) in enumerate(self.fields.items()):
            type_ = self._type(kind, at, logical=logical)
            if name != "ident" and (at + len(self.fields)) % 3 and not isinstance(type_, list):
                fields.append({"name": name, "type": ["null", type_], "default": None})
            else:
                fields.append({"name": name, "type": type_})
        return {"type": "record", "name": "Root", "fields": fields}

    def _type(self, kind: str, at: int, *, logical: bool) -> Any:
        plain: dict[str, Any] = {
            "bool": "boolean",
            "text": "string",
            "date": "int",
            "moment": "long",
            "decimal": "bytes",
            "list": {"type": "array", "items": "long"},
            "map": {"type": "map", "values": "long"},
            "choice": ["null", "string", "long"],
            "self": ["null", "Root"],
            "enum": {"type": "enum", "name": f"E{at}", "symbols": ["A", "B"]},
        }
        plain["record"] = {
            "type": "record",
            "name": f"R{at}",
            "fields": [
                {"name": "x", "type": "int", "default": 3},
                {"name": "y", "type": "string", "default": "${foo}"},
            ],
        }
        marks = {"date": "date", "moment": "timestamp-micros", "decimal": "decimal"}
        if not logical or kind not in marks:
            return plain.get(kind, kind)
        digits = {"precision": 10, "scale": 2} if kind == "decimal" else {}
        return {"type": plain[kind], "logicalType": marks[kind], **digits}

    def record(self) -> bytes:
        # The writer's schema has no logical types, so that a number may be an invalid date or decimal.
        row = {name: None if self.fields[name] == "self" else value for name, value in self.row().items()}
        if self.random.random() < 0.1:
            return self.random.randbytes(self.random.randrange(40))
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(self._schema(logical=False)), row)
        return out.getvalue()


class Protobuf(Contents):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.numbers = {name: at for at, name in enumerate(FIRST, start=1)}

    def text(self) -> str:
        names = {
            "bool": "bool",
            "text": "string",
            "bytes": "bytes",
            "float": "float",
            "double": "double",
            "int": "int32",
        }
        names |= {"long": "int64", "decimal": "uint64", "date": "uint32", "moment": "google.protobuf.Timestamp"}
        names |= {
            "list": "repeated int64",
            "map": "map<string, int64>",
            "record": "Inner",
            "self": "Root",
            "enum": "Kind",
        }
        lines = []
        for name, kind in self.fields.items():
            number = self.numbers.setdefault(name, len(self.numbers) + 1)
            if kind == "choice":
                lines.append(f"oneof o{number} {{ string {name} = {number}; int64 {name}_n = {500 + number}; }}")
            else:
                optional = "optional " if (number % 2 or name == "u") and kind not in ("list", "map") else ""
                lines.append(f"{optional}{names[kind]} {name} = {number};")
        return (
            'syntax = "proto3"; import "google/protobuf/timestamp.proto"; enum Kind { A = 0; B = 1; } '
            f"message Root {{ {' '.join(lines)} }} message Inner {{ int32 x = 1; string y = 2; }}"
        )

    def record(self) -> bytes:
        made, row = bytearray(b"\0"), self.row()
        for name, kind in self.fields.items():
            if name == "ident" or self.random.random() < 0.7:
                made += _wire(self.numbers.setdefault(name, len(self.numbers) + 1), _of_wire(kind, row[name]))
        return bytes(made) if self.random.random() > 0.1 else self.random.randbytes(30)


def _of_wire(kind: str, value: Any) -> Any:
    """Return the value in Protobuf's wire form; for some kinds, return a value that the field's type forbids."""
    match kind:
        case "enum":
            return 0 if value == "A" else 7
        case "decimal":
            return len(value) - 1
        case "moment":
            return _wire(1, value) + _wire(2, value % 10)
        case "record":
            return _wire(1, value["x"]) + _wire(2, value["y"])
        case "self":
            return b""
        case "float":
            return None
    return value


def _wire(number: int, value: Any) -> bytes:
    match value:
        case bool() | int():
            return _varint(number << 3) + _varint(value & (2**64 - 1))
        case float():
            return _varint(number << 3 | 1) + struct.pack("<d", value)
        case list():
            return b"".join(_wire(number, each) for each in value)
        case dict():
            inner = [_wire(1, key) + _wire(2, each) for key, each in value.items()]
            return b"".join(_varint(number << 3 | 2) + _varint(len(each)) + each for each in inner)
        case None:
            return b""
    data = value.encode() if isinstance(value, str) else value
    return bytes(_varint(number << 3 | 2) + _varint(len(data)) + data)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


class JsonSchema(Contents):
    def odd_names(self) -> list[str]:
        return [*ODD_NAMES, *ODD_TEXTS]

    def text(self) -> str:
        types: dict[str, Any] = {
            **{key: {"type": "integer"} for key in ("int", "long")},
            **{key: {"type": "number"} for key in ("float", "double", "decimal")},
            "bool": {"type": "boolean"},
            "bytes": {"type": "string", "contentEncoding": "base64"},
            "date": {"type": "string", "format": "date"},
            "moment": {"type": "string", "format": "date-time"},
            "enum": {"enum": ["A", "B"]},
            "list": {"type": "array", "items": {"type": "integer"}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "record": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}},
            "choice": {"oneOf": [{"type": "null"}, {"type": "string"}, {"type": "integer"}]},
            "self": {"$ref": "#"},
        }
        properties = {name: types.get(kind, {"type": "string"}) for name, kind in self.fields.items()}
        return json.dumps({"type": "object", "title": "Root", "properties": properties, "required": ["ident"]})

    def record(self) -> bytes:
        return _json_record(self)


class Json(Contents):
    """Records of JSON, which has no schema versions, because the pipeline file declares the columns."""

    DDL = "ident INT, u STRING, f BINARY, zone STRING, at TIMESTAMP, amount DECIMAL(10, 2), day DATE, n ARRAY<BIGINT>"

    def odd_names(self) -> list[str]:
        return [*ODD_NAMES, *ODD_TEXTS]

    def record(self) -> bytes:
        return _json_record(self)


def _json_record(of: Contents) -> bytes:
    moments = [
        "2024-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "0001-01-01T00:00:00+18:00",
        "+294247-01-10T04:00:54Z",
    ]
    texts: dict[str, list[Any]] = {
        "moment": moments,
        "date": ["2024-02-29", "2023-02-29", "-0001-01-01", "99999-01-01"],
        "bytes": ["YWJjZA==", "", "YWJj", "not base64!"],
        "decimal": [1.5, 10**8 - 1, 10**8, 0.005, 1e300],
    }
    drawn = of.row()
    row: dict[str, Any] = {"ident": drawn["ident"] if of.random.random() < 0.95 else None}
    wild = of.random.random() < 0.5
    for name, kind in of.fields.items():
        if name == "ident" or of.random.random() < 0.2:
            continue
        value = drawn[name]
        if kind in texts:
            value = of.random.choice(texts[kind]) if wild else texts[kind][0]
        row[name] = of.random.choice(WRONG) if wild and of.random.random() < 0.1 else value
    text = json.dumps(row, ensure_ascii=of.random.random() < 0.5)
    return (
        text.encode("utf-8", "surrogatepass")
        if of.random.random() > 0.05
        else text[: of.random.randrange(len(text))].encode()
    )


FORMATS: dict[str, type[Contents]] = {"avro": Avro, "protobuf": Protobuf, "json_schema": JsonSchema, "json": Json}
