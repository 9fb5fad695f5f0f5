"""Generate Avro schemas of any shape and their later versions: all are valid, and as odd as a registry accepts.

The module ``chains`` makes only compatible changes; this module makes any changes. A seed decides the changes.
"""

import copy
import itertools
import random
from typing import Any

Json = Any
PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL = [
    *("date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
    *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos", "uuid", "duration", "decimal"),
    *("big-decimal", "unheard-of"),
]
ODD_NAMES = [
    "a b",
    "ä",
    "select",
    "a-b",
    "1a",
    "a`b",
    "a.b",
    "element",
    "value",
    "member0",
    "x" * 200,
    "日本",
    "a'b",
    'a"b',
]


class Schemas:
    """A generator of schemas, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = itertools.count(1)
        self._known: list[str] = []

    def record(self) -> Json:
        """Return a record schema; most have a few fields, some have none or hundreds."""
        self._known = []
        many = self._random.random()
        count = 0 if many < 0.03 else self._random.randint(100, 500) if many > 0.98 else self._random.randint(1, 8)
        return self._record(0, count, name="Root")

    def next(self, version: Json) -> Json:
        """Return a later version with fields added, dropped, renamed, changed, or moved into or out of a union."""
        later = copy.deepcopy(version)
        for _ in range(self._random.randint(1, 4)):
            records = [each for each in _records(later) if each["fields"] or each is later]
            self._known = []  # New parts refer only to new types, because an older type could be defined after its use.
            self._change(self._random.choice(records))
        return later

    def _change(self, record: Json) -> None:
        fields = record["fields"]
        kind = self._random.choice(["add", "add", "drop", "rename", "type", "optional", "default", "case", "name"])
        if kind == "add" or not fields:
            name = self._name()
            if not _has(record, name):
                fields.insert(self._random.randint(0, len(fields)), self._field(1, name))
            return
        field = self._random.choice(fields)
        if kind == "drop" and not _defines(field["type"]):
            fields.remove(field)
        elif kind == "rename":
            field["aliases"] = [*field.get("aliases", []), field["name"]]
            field["name"] = f"r{next(self._numbers)}"
        elif kind == "type" and not _defines(field["type"]):
            field["type"] = self._type(1)
            field.pop("default", None)
        elif kind == "optional" and not isinstance(field["type"], list) and field["type"] != "null":
            field["type"] = self._random.choice([["null", field["type"]], [field["type"], "null"]])
            field.pop("default", None)
        elif kind == "default":
            field["default"] = self._random.choice([None, 0, "x", [], {}, 1.5, True, {"a": 1}, 2**70])
        elif kind == "case" and not _has(record, field["name"].upper()):
            fields.append(self._field(1, field["name"].upper()))
        elif kind == "name" and record["name"] != "Root":
            record["aliases"] = [record["name"]]

    def _record(self, depth: int, count: int, name: str | None = None) -> Json:
        name = name or f"{self._random.choice(['', '', 'n.', 'm.k.'])}R{next(self._numbers)}"
        self._known.append(name)
        names = dict.fromkeys(self._name() for _ in range(count))
        return {"type": "record", "name": name, "fields": [self._field(depth + 1, each) for each in names]}

    def _field(self, depth: int, name: str) -> Json:
        field = {"name": name, "type": self._type(depth)}
        if self._random.random() < 0.2:
            field["default"] = self._random.choice([None, 0, "x", [], {}])
        if self._random.random() < 0.1:
            field["aliases"] = [self._name()]
        return field

    def _name(self) -> str:
        return self._random.choice(ODD_NAMES) if self._random.random() < 0.1 else f"f{next(self._numbers)}"

    def _type(self, depth: int, *, in_union: bool = False) -> Json:
        kinds = ["primitive", "primitive", "logical", "enum", "fixed", "known"]
        if depth < 5:
            kinds += ["record", "array", "map", *([] if in_union else ["union", "union"])]
        match self._random.choice(kinds):
            case "logical":
                return self._logical()
            case "enum":
                symbols = [f"S{at}" for at in range(self._random.randint(0, 3))]
                return {"type": "enum", "name": self._new("E"), "symbols": symbols}
            case "fixed":
                return {"type": "fixed", "name": self._new("F"), "size": self._random.choice([0, 1, 12, 16])}
            case "known" if self._known:
                # Refer to a type by its full name only, because a bare name is looked up in the enclosing namespace.
                known = self._random.choice(self._known)
                return known if "." in known else "int"
            case "record":
                return self._record(depth, self._random.randint(0, 4))
            case "array":
                return {"type": "array", "items": self._type(depth + 1)}
            case "map":
                return {"type": "map", "values": self._type(depth + 1)}
            case "union":
                return self._union(depth)
        return self._random.choice(PRIMITIVES)

    def _logical(self) -> Json:
        base = self._random.choice(["int", "long", "bytes", "string", "fixed"])
        logical: Json = {"type": base, "logicalType": self._random.choice(LOGICAL)}
        if base == "fixed":
            logical |= {"name": self._new("L"), "size": self._random.choice([1, 4, 12, 16])}
        if logical["logicalType"] == "decimal":
            logical |= {
                "precision": self._random.choice([-1, 0, 1, 9, 18, 38]),
                "scale": self._random.choice([0, 2, 40]),
            }
        return logical

    def _union(self, depth: int) -> Json:
        found: dict[str, Json] = {}
        for _ in range(self._random.randint(1, 5)):
            member = self._type(depth + 1, in_union=True)
            kind = member if isinstance(member, str) else member.get("name", member["type"])
            found.setdefault(kind, member)
        return list(found.values())

    def _new(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"


def _has(record: Json, name: str) -> bool:
    return any(each["name"] == name for each in record["fields"])


def _records(schema: Json) -> list[Json]:
    if isinstance(schema, list):
        return [found for each in schema for found in _records(each)]
    if not isinstance(schema, dict):
        return []
    inner = [found for field in schema.get("fields", ()) for found in _records(field["type"])]
    inner += [found for part in ("items", "values") for found in _records(schema.get(part))]
    return [schema, *inner] if schema["type"] == "record" else inner


def _defines(schema: Json) -> bool:
    """Check whether the schema defines a named type, which other parts may refer to."""
    if isinstance(schema, list):
        return any(map(_defines, schema))
    if isinstance(schema, dict):
        return schema["type"] in ("record", "enum", "fixed") or any(
            _defines(schema.get(part)) for part in ("items", "values")
        )
    return False
