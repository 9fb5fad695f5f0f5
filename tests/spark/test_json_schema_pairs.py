"""Random JSON Schemas and values decode as the library jsonschema validates them; in a JVM without Spark."""

import datetime
import json
import math
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lakefeed.records.decode.json_schema import NAME, avro_schema
from lakefeed.records.schema.avro import ANY
from lakefeed.records.schema.merge import merge_schemas
from tests.support.probe import Probe

pytestmark = pytest.mark.quick

DEFINITIONS = 3
SINGLE = ("integer", "number", "boolean", "string")
NAMES = ("a", "b", "c", "d e", "f.g", 'h"i', "ü")
WRONG: tuple[Any, ...] = (5, 1.5, True, "text", [], {}, [1], {"a": {"b": 1}}, None, 2**70)


class Schemas:
    """A random schema with definitions, and random values of this schema, all drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.definitions = {f"d{at}": self.schema(2, references=at) for at in range(DEFINITIONS)}
        self.root = {**self.object(3, references=DEFINITIONS), "$defs": self.definitions}

    def schema(self, depth: int, *, references: int) -> Any:
        """Return a schema that refers only to the first ``references`` definitions, so that none is recursive."""
        inner = {"depth": depth - 1, "references": references}
        kind = self.chance.randrange(14) if depth > 0 else 0
        match kind:
            case 5:
                return {"type": "array", "items": self.schema(**inner)}
            case 6:
                return {"type": "object", "additionalProperties": self.schema(**inner)}
            case 7:
                options = [{"type": "null"}, self.schema(**inner)]
                self.chance.shuffle(options)
                return {self.chance.choice(["anyOf", "oneOf"]): options}
            case 8:
                return {"anyOf": [self.schema(**inner), self.schema(**inner)]}
            case 9 if references:
                return {"$ref": f"#/$defs/d{self.chance.randrange(references)}"}
            case 10:
                return {"allOf": [self.object(**inner), {"description": "x"}], **self.object(**inner)}
            case 11:
                return self.chance.choice(
                    [{}, True, {"type": "object"}, {"type": "array"}, {"type": ["string", "integer"]}]
                )
            case 12:
                return {"enum": self.chance.choice([["x", "y"], [1, 2], [1.5, 2], ["x", 1], [None, "x"], [True]])}
            case 13 | 4:
                return self.object(**inner)
        return self.single()

    def single(self) -> dict[str, Any]:
        kind = self.chance.choice(SINGLE)
        made: dict[str, Any] = {"type": self.chance.choice([kind, [kind, "null"]])}
        if kind == "string" and self.chance.random() < 0.4:
            made |= self.chance.choice([{"format": "date"}, {"format": "date-time"}, {"contentEncoding": "base64"}])
        return made

    def object(self, depth: int, *, references: int) -> dict[str, Any]:
        names = self.chance.sample(NAMES, self.chance.randrange(1, 5))
        required = self.chance.sample(names, self.chance.randrange(len(names) + 1))
        properties = {name: self.schema(depth - 1, references=references) for name in names}
        made: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
        if self.chance.random() < 0.2:
            branches = [self.object(depth - 1, references=references) for _ in range(2)] if depth > 0 else [{}, {}]
            if self.chance.random() < 0.5:
                branches = [{**each, "additionalProperties": False} for each in branches]
                made["properties"], made["required"] = {}, []
            made[self.chance.choice(["anyOf", "oneOf"])] = branches
        return made

    def value(self, schema: Any, depth: int = 0) -> Any:
        """Return a value that is likely to be valid for the schema."""
        if schema in (True, {}) or depth > 12:
            return self.chance.choice(WRONG)
        if "$ref" in schema:
            return self.value(self.definitions[schema["$ref"].rpartition("/")[2]], depth + 1)
        if "enum" in schema:
            return self.chance.choice(schema["enum"])
        made = self.typed(schema, depth)
        for part in (*schema.get("allOf", ()), *self.chosen(schema)):
            if part is True or not part.keys() - {"description"}:
                continue
            more = self.value(part, depth + 1)
            if isinstance(made, dict) and isinstance(more, dict):
                made = {**more, **made}
            elif made is None:
                made = more
        return made

    def chosen(self, schema: dict[str, Any]) -> list[Any]:
        options = [schema[word] for word in ("anyOf", "oneOf") if word in schema]
        return [self.chance.choice(each) for each in options]

    def typed(self, schema: dict[str, Any], depth: int) -> Any:
        kinds = schema.get("type", [])
        kind = self.chance.choice([kinds] if isinstance(kinds, str) else kinds) if kinds else None
        match kind:
            case "integer":
                return self.chance.choice([0, -1, 2**40, -(2**63), 2**63 - 1, 3.0])
            case "number":
                return self.chance.choice([0, 1.5, -2.25e10, 1e300, 2**53])
            case "boolean":
                return self.chance.random() < 0.5
            case "string":
                if "format" in schema:
                    return {"date": "2026-01-02", "date-time": "2026-01-02t03:04:05.5z"}[schema["format"]]
                return self.chance.choice(
                    ["AAEC", ""] if "contentEncoding" in schema else ["", "text", "ü\U0001f600", "1"]
                )
            case "array":
                items = schema.get("items", True)
                return [self.value(items, depth + 1) for _ in range(self.chance.randrange(3))]
            case "object":
                made = {}
                for name, each in schema.get("properties", {}).items():
                    if name in schema.get("required", ()) or self.chance.random() < 0.6:
                        made[name] = self.value(each, depth + 1)
                values = schema.get("additionalProperties")
                return made | ({name: self.value(values, depth + 1) for name in ("k", "l m")} if values else {})
        return None

    def changed(self, value: Any) -> Any:
        """Return the value with one random part replaced or removed; the result may be invalid."""
        if isinstance(value, dict) and value and self.chance.random() < 0.85:
            key = self.chance.choice(list(value))
            if self.chance.random() < 0.1:
                return {name: each for name, each in value.items() if name != key}
            return {**value, key: self.changed(value[key])}
        if isinstance(value, list) and value and self.chance.random() < 0.85:
            at = self.chance.randrange(len(value))
            return [*value[:at], self.changed(value[at]), *value[at + 1 :]]
        return self.chance.choice(WRONG)


class Misfit(Exception):
    """A value that the column cannot hold."""


def row(kind: Any, value: Any, *, any_json: bool = False) -> Any:
    """Return the text that ``Canonical.java`` writes for a value in a column of an Avro type.

    Raises:
        Misfit: the column cannot hold the value.
    """
    if isinstance(kind, list):
        return None if value is None else row(next(each for each in kind if each != "null"), value, any_json=any_json)
    name = kind["type"] if isinstance(kind, dict) else kind
    logical = kind.get("logicalType") if isinstance(kind, dict) else None
    if name == "null" and value is None:
        return None
    if name == "record" and isinstance(value, dict):
        return [[each["name"], field(each, value)] for each in kind["fields"]]
    if name == "array" and isinstance(value, list):
        return [row(kind["items"], each, any_json=any_json) for each in value]
    if name == "map" and isinstance(value, dict):
        return {key: row(kind["values"], each, any_json=any_json) for key, each in sorted(value.items())}
    if name == "string" and (any_json or isinstance(value, str)) and value is not None:
        return value if isinstance(value, str) else ("json", value)
    if name == "boolean" and isinstance(value, bool):
        return str(value).lower()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if name == "long" and logical is None and is_number and value == int(value) and abs(value) <= 2**63 - (value > 0):
        return str(int(value))
    if name == "double" and is_number and (isinstance(value, float) or int(float(value)) == value):
        return ("number", float(value))
    if isinstance(value, str):
        return text(name, logical, value)
    raise Misfit


def field(column: dict[str, Any], value: dict[str, Any]) -> Any:
    found = value.get(column.get(NAME, column["name"]))
    if found is None and not (isinstance(column["type"], list) or column["type"] == "null"):
        raise Misfit
    return None if found is None else row(column["type"], found, any_json=column.get(ANY) is True)


def text(name: Any, logical: str | None, value: str) -> Any:
    if logical == "date" and value == "2026-01-02":
        return str((datetime.date(2026, 1, 2) - datetime.date(1970, 1, 1)).days)
    if logical == "timestamp-micros" and value.startswith("2026-01-02"):
        moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
        if "t" in value:
            moment += datetime.timedelta(hours=3, minutes=4, seconds=5.5)
        return str(int(moment.timestamp() * 1_000_000))
    if name == "bytes" and value in ("AAEC", "", "text"):
        return {"AAEC": "000102", "": "", "text": "b5ec6d"}[value]
    raise Misfit


def same(found: Any, expected: Any) -> bool:
    match expected:
        case ("json", value):
            return bool(json.loads(found) == value)
        case ("number", value):
            return math.isclose(float(found), value, rel_tol=0)
        case dict():
            return (
                isinstance(found, dict)
                and list(found) == list(expected)
                and all(map(same, found.values(), expected.values()))
            )
        case list():
            return isinstance(found, list) and len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


def holds(probe: Probe, seed: int) -> tuple[int, int]:
    """Compare decoder and library on random values of a schema; return the counts of valid and invalid values."""
    made = Schemas(seed)
    schema = avro_schema(json.dumps(made.root))
    validator = Draft202012Validator(made.root)
    values = [made.value(made.root) for _ in range(6)]
    values += [made.changed(value) for value in values for _ in range(3)]
    options = {"format": "json", "reader-schema": schema}
    found = probe.decode(options, [json.dumps(each, ensure_ascii=False).encode() for each in values])
    rows = 0
    for value, each in zip(values, found, strict=True):
        case = f"seed {seed}: {json.dumps(made.root)} {schema} {json.dumps(value)} {each}"
        try:
            expected = row(json.loads(schema), value)
        except Misfit:
            assert each["error"] is not None, case
            # If only the library accepts a value, no column can hold it: a number is too large, or a text has another
            # form.
            assert not validator.is_valid(value) or "cannot hold" in each["error"] or "another form" in each["error"], (
                case
            )
            continue
        assert each["error"] is None, case
        assert same(each["value"], expected), case
        rows += 1
        # Skip schemas with anyOf or allOf: if the parts of a random allOf contradict each other, the decoder uses the
        # last part.
        if f'"{ANY}"' not in schema and not any(f'"{word}"' in json.dumps(made.root) for word in ("anyOf", "allOf")):
            wrong = [error for error in validator.iter_errors(value) if error.validator == "type"]
            # A nullable column accepts null even if the library does not.
            assert all(error.instance is None for error in wrong), case
    return rows, len(values) - rows


@pytest.mark.parametrize(
    ("first", "count"), [(0, 100), *(pytest.param(at, 500, marks=pytest.mark.slow) for at in range(1_000, 3_000, 500))]
)
def test_decoder_and_library_accept_and_read_the_same_values(probe: Probe, first: int, count: int) -> None:
    counts = [holds(probe, seed) for seed in range(first, first + count)]
    assert sum(right for right, _ in counts) > 4 * count
    assert sum(wrong for _, wrong in counts) > 2 * count


@pytest.mark.parametrize("order", [1, -1])
def test_a_property_of_type_string_or_of_several_types_is_read_as_text(probe: Probe, order: int) -> None:
    kinds = [{"type": "string"}, {"oneOf": [{"type": "string"}, {"type": "integer"}]}][::order]
    one, two = (avro_schema(json.dumps({"type": "object", "properties": {"v": each}})) for each in kinds)
    options = {"format": "json", "reader-schema": merge_schemas(one, two, times_are_numbers=False).schema}
    assert [each["value"] for each in probe.decode(options, [b'{"v":7}', b'{"v":"x"}'])] == [[["v", "7"]], [["v", "x"]]]
