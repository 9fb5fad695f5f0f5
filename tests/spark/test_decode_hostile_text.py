"""JSON and CSV payloads that attack the decoder become rows or errors, within the probe's limits of cost."""

import itertools
import json
from typing import Any

import pytest

from tests.support.hostile import mutated
from tests.support.probe import Probe


def struct(**fields: Any) -> dict[str, Any]:
    """Return the JSON of a Spark struct type."""
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()],
    }


def array(of: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": of, "containsNull": True}


def map_of(values: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": values, "valueContainsNull": True}


SINGLE = {
    "l": "long",
    "d": "double",
    "f": "float",
    "n": "decimal(38,10)",
    "b": "boolean",
    "s": "string",
    "raw": "binary",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
}
WIDE = struct(**{f"c{at}": "long" for at in range(500)})
NESTED = {"m": map_of("long"), "mm": map_of(map_of("string")), "aa": array(array("long")), "w": array(WIDE), "o": WIDE}
SMALL, LARGE = 30_000, 1_000_000


def numbers(size: int) -> list[str]:
    """Return texts of numbers: some have many digits, some are short but huge or tiny, such as 1e1000000000."""
    return [
        "9" * size,
        "0." + "0" * size + "1",
        "1" + "0" * size,
        "9" * size + "." + "9" * size,
        "1e" + "9" * size,
        "1e1000000000",
        "-1e-1000000000",
        "1e2147483648",
        "9" * 990 + "e-980",
    ]


# "Aa" and "BB" have the same hash code in Java, and therefore all texts of 11 such pairs.
COLLIDING = ["".join(letters) for letters in itertools.product(["Aa", "BB"], repeat=11)]


def json_payloads(size: int) -> dict[str, bytes]:
    found = {f"{name} {at}": f'{{"{name}": {number}}}' for name in SINGLE for at, number in enumerate(numbers(size))}
    found |= {
        f"{name} text {at}": f'{{"{name}": "{number}"}}' for name in SINGLE for at, number in enumerate(numbers(size))
    }
    many = range(size // 10)
    found |= {
        "unique keys": json.dumps({"m": {f"k{at}": at for at in many}}),
        "short keys": json.dumps({"m": {f"{at:x}": 1 for at in many}}, separators=(",", ":")),
        "unique keys of none": json.dumps({f"k{at}": at for at in many}),
        "colliding keys": json.dumps({"m": dict.fromkeys(COLLIDING, 1)}),
        "colliding keys of none": json.dumps(dict.fromkeys(COLLIDING, 1)),
        "one key": '{"m": {' + ", ".join(['"a": 1'] * len(many)) + "}}",
        "an unknown key": "{" + ", ".join(['"a": 1'] * len(many)) + "}",
        "empty maps": '{"mm": {' + ",".join(f'"{at:x}":{{}}' for at in many) + "}}",
        "empty arrays": '{"aa": [' + ",".join(["[]"] * len(many)) + "]}",
        "nulls": '{"aa": [' + ",".join(["null"] * len(many)) + "]}",
        "one-digit items": '{"aa": [[' + ",".join(["1"] * size) + "]]}",
        "wide structs": '{"w": [' + ",".join(["{}"] * len(many)) + "]}",
        "wide nulls": '{"w": [' + ",".join(["null"] * len(many)) + "]}",
        "objects": '{"o": ' * size,
        "arrays in text": '{"s": ' + "[" * size,
        "arrays that are not read": '{"x": ' + "[" * size + "]" * size + "}",
        "objects in text": '{"s": ' + '{"a":' * 900 + "1" + "}" * 900 + "}",
        "a number in text": '{"s": [' + "9" * size + "]}",
        "escapes": '{"s": "' + "\\u0000" * (size // 6) + '"}',
        "escapes in text": '{"s": ["' + "\\u0000" * (size // 6) + '"]}',
        "escaped keys": '{"s": {"' + "\\u0001" * (size // 6) + '": 1}}',
        "halves": '{"s": "' + "\\ud800" * (size // 6) + '"}',
        "a long key": '{"m": {"' + "k" * size + '": 1}}',
        "a long unknown key": '{"' + "k" * size + '": 1}',
        "blanks": '{"l":' + " " * size + "1}",
        "bytes": '{"raw": "' + "AAAA" * (size // 4) + '"}',
        "bytes that are none": '{"raw": "' + "=" * size + '"}',
        "a zone": '{"at": "2026-01-02T03:04:05' + "Z" * size + '"}',
        "a fraction": '{"at": "2026-01-02T03:04:05.' + "1" * size + 'Z"}',
        "a region": '{"at": "2026-01-02T03:04:05 Europe/' + "A" * 60 + '"}',
        "a date": '{"day": "' + "2026-01-02" * (size // 10) + '"}',
        "a quote": '{"s": "' + "a" * size,
    }
    return {name: text.encode() for name, text in found.items()}


def csv_payloads(size: int) -> dict[str, bytes]:
    found = {
        f"{name} {at}": "," * place + number
        for place, name in enumerate(SINGLE)
        for at, number in enumerate(numbers(size))
    }
    found |= {
        "commas": "," * size,
        "quotes": '"' * size,
        "odd quotes": '"' * (size + 1),
        "quoted cells": '"",' * (size // 3),
        "quotes in the fifth": ',,,,,"' + '""' * (size // 2) + '"' + "," * 4,
        "an open quote": '"' + "a" * size,
        "line ends": "\n" * size,
        "carriage returns": "\r" * size,
        "lines": "1,2\r\n" * (size // 5),
        "blanks": " " * size,
        "nulls": "\0" * size,
        "a zone": "," * 8 + "2026-01-02T03:04:05" + "Z" * size + ",",
    }
    return {name: text.encode() for name, text in found.items()}


JSON = {"format": "json", "reader-type": json.dumps(struct(**SINGLE, **NESTED))}
CSV = {
    "format": "io.lakefeed.csv.CsvReader",
    "reader-type": json.dumps(struct(**SINGLE)),
    "delimiter": ",",
    "quote": '"',
    "escape": '"',
    "null-value": "",
}
GOOD_JSON = json.dumps(
    {
        "l": -5,
        "d": 1.5e3,
        "n": 12.25,
        "b": True,
        "s": "a\u00e4\U0001f600\\\n",
        "raw": "AAEC",
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.123456Z",
        "m": {"a": 1, "b": None},
        "mm": {"a": {"b": "c"}},
        "aa": [[1, 2], [], None],
        "w": [{"c1": 1}, {}],
        "o": {"c499": 7},
        "unknown": [{"x": [1, "y", None, 1e5]}],
    }
).encode()
GOOD_CSV = (
    '-5,1.5e3,NaN,12.25,true,"a ""ä"", b\n",AAEC,2026-01-02,2026-01-02T03:04:05Z,2026-01-02 03:04:05\r\n'.encode()
)


@pytest.mark.parametrize(
    ("size", "lenient"),
    [(SMALL, "true"), *(pytest.param(LARGE, lenient, marks=pytest.mark.slow) for lenient in ("false", "true"))],
)
def test_a_hostile_text_costs_no_more_than_its_size_allows(probe: Probe, size: int, lenient: str) -> None:
    payloads = json_payloads(size)
    found = dict(zip(payloads, probe.hostile({**JSON, "lenient": lenient}, [*payloads.values()]), strict=True))
    assert found["unique keys"].row
    assert found["colliding keys"].row
    assert found["wide nulls"].row
    assert "bytes of memory" in (found["wide structs"].error or "")
    lines = csv_payloads(size)
    found |= dict(zip(lines, probe.hostile(CSV, [*lines.values()]), strict=True))
    for name, cost in found.items():
        assert "defect" not in (cost.error or ""), name
        assert "999" not in (cost.error or ""), name


@pytest.mark.parametrize(
    ("count", "seed"), [(300, 11), *(pytest.param(4_000, seed, marks=pytest.mark.slow) for seed in range(5))]
)
def test_a_mutated_text_costs_no_more_than_its_size_allows(probe: Probe, count: int, seed: int) -> None:
    for options, good in ((JSON, GOOD_JSON), ({**JSON, "lenient": "true"}, GOOD_JSON), (CSV, GOOD_CSV)):
        right, *costs = probe.hostile(options, [good, *mutated([good], count=count, seed=seed)])
        assert right.row, right
        assert any(not each.row for each in costs)
        assert not [each for each in costs if "defect" in (each.error or "")]
