"""Strict and lenient JSON decoding accept valid values, and refuse all others with the path of the field."""

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.records.decode import Json, decoded
from tests.support.records import records, results

pytestmark = pytest.mark.quick

COLUMNS = {
    "l": "BIGINT",
    "i": "INT",
    "d": "DOUBLE",
    "f": "FLOAT",
    "n": "DECIMAL(10,2)",
    "b": "BOOLEAN",
    "s": "STRING",
    "day": "DATE",
    "at": "TIMESTAMP",
    "m": "MAP<STRING, BIGINT>",
    "lines": "ARRAY<STRUCT<price: DOUBLE, at: TIMESTAMP>>",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

RIGHT: list[tuple[str, Any]] = [
    ('{"l": 1.0}', 1),
    ('{"l": 1e3}', 1000),
    ('{"l": -0}', 0),
    ('{"l": 9223372036854775807}', 2**63 - 1),
    ('{"d": 9007199254740992}', 2.0**53),
    # Doubles are decoded from the shortest text, as JavaScript prints it, and from texts with more digits.
    ('{"d": 1234567890123456800}', 1234567890123456768.0),
    ('{"d": 100000000000000000000}', 1e20),
    ('{"d": 1e308}', 1e308),
    ('{"d": 0.10000000000000000555}', 0.1),
    ('{"d": 0e-999}', 0.0),
    ('{"n": 0.1}', Decimal("0.10")),
    ('{"n": 1e2}', Decimal("100.00")),
    ('{"s": "\\u0000"}', "\0"),
    ('{"s": "\\ud83d\\ude00"}', "😀"),
    ('{"s": 1e5}', "1e5"),
    ('{"s": {"a" : 123456789012345678901234567890}}', '{"a":123456789012345678901234567890}'),
    ('{"day": "2024-02-29"}', datetime.date(2024, 2, 29)),
    ('{"at": "2026-01-02t03:04:05z"}', datetime.datetime(2026, 1, 2, 3, 4, 5)),
    ('{"at": "2026-01-02T03:04:05+02:00"}', datetime.datetime(2026, 1, 2, 1, 4, 5)),
    ('{"at": "2026-01-02T03:04:05.123456789Z"}', datetime.datetime(2026, 1, 2, 3, 4, 5, 123456)),
    ('\ufeff{"l": 1}', 1),
    ('{"l": null}', None),
    ('{"unknown": 1, "unknown": 2}', None),
]
FRAMED = "it begins as values of a schema registry do, with schema id"
FITS_NOT = "a number that it cannot hold"
WRONG: list[tuple[str | bytes, str]] = [
    ('{"l": "1"}', "l: expected bigint, found a string"),
    ('{"b": "true"}', "b: expected boolean, found a string"),
    ('{"n": "1.5"}', "n: expected decimal(10,2), found a string"),
    ('{"b": 1}', "b: expected boolean, found a number"),
    ('{"d": NaN}', "d: NaN and Infinity are not JSON (lenient: true reads them)"),
    ('{"d": -Infinity}', "d: NaN and Infinity are not JSON (lenient: true reads them)"),
    ('{"d": "NaN"}', "d: expected double, found a string"),
    ('{"d": 123456789012345678901234567890}', f"d: expected double, found {FITS_NOT}"),
    ('{"d": 9007199254740993}', f"d: expected double, found {FITS_NOT}"),
    ('{"f": 16777217}', f"f: expected float, found {FITS_NOT}"),
    ('{"d": 1e400}', f"d: expected double, found {FITS_NOT}"),
    ('{"d": 1e-400}', f"d: expected double, found {FITS_NOT}"),
    ('{"l": 1e1000000000}', f"l: expected bigint, found {FITS_NOT}"),
    ('{"l": 1e-1000000000}', f"l: expected bigint, found {FITS_NOT}"),
    ('{"n": 1e99999999999999999999}', f"n: expected decimal(10,2), found {FITS_NOT}"),
    ('{"n": 1e-1000000000}', f"n: expected decimal(10,2), found {FITS_NOT}"),
    ('{"n": 0.001}', f"n: expected decimal(10,2), found {FITS_NOT}"),
    ('{"i": 2147483648}', f"i: expected int, found {FITS_NOT}"),
    ('{"s": "\\ud800"}', "s: half of a surrogate pair, which is no character"),
    ('{"s": {"a": "\\udc00"}}', "s: half of a surrogate pair, which is no character"),
    ('{"m": {"\\ud800": 1}}', "m[0]: half of a surrogate pair, which is no character"),
    ('{"m": {"a": 1, "a": 2}}', "m[1]: a duplicate key"),
    ('{"m": {"secret": "x"}}', "m[0]: expected bigint, found a string"),
    ('{"lines": [{}, {"price": "9"}]}', "lines[1].price: expected double, found a string"),
    ('{"lines": [{"at": 5}]}', "lines[0].at: expected timestamp, found a number"),
    ('{"l": 01}', "l: not JSON at character 7"),
    ('{"l": +1}', "l: not JSON at character 7"),
    ('{"l": .5}', "l: not JSON at character 6"),
    ('{"l": 0x1}', "not JSON at character 7"),
    ('{"l": 1, }', "not JSON at character 9"),
    ('{"l": 1 /* one */}', "not JSON at character 8"),
    ("{'l': 1}", "not JSON at character 1"),
    ('{"s": "a\nb"}', "s: not JSON at character 8"),
    ('{"s": "\\x41"}', "s: not JSON at character 8"),
    ('{"l": 1', "truncated JSON"),
    ('{"lines": [{"price": 1', "lines[0]: truncated JSON"),
    ('{"l": 1} {}', "something follows the JSON object after character 8"),
    ('{"l": 1}\0', "something follows the JSON object after character 8"),
    (b'{"s": "\xed\xa0\x80"}', "not UTF-8"),
    (b'{"s": "\xc0\xaf"}', "not UTF-8"),
    (b'{"s": "\xf4\x90\x80\x80"}', "not UTF-8"),
    ('{"l": 1}'.encode("utf-16"), "not UTF-8"),
    ('{"l": 1}'.encode("utf-16-le"), "not JSON at character 2"),
    ('{"l": 1}'.encode("utf-16-be"), f"not JSON at character 1; {FRAMED} 2063606272"),
    ('{"s": ' + "[" * 1_000 + "]" * 1_000 + "}", "s: nested deeper than 1000 levels"),
    ('{"day": "2024-02-30"}', "day: expected date, found a string of another form"),
    ('{"day": "+10000-01-01"}', "day: expected date, found a string of another form"),
    ('{"at": "10000-01-01T00:00:00Z"}', "at: expected timestamp, found a string of another form"),
    ('{"at": "2026-01-02T03:04:60Z"}', "at: expected timestamp, found a string of another form"),
    ('{"at": "2026-01-02T03:04:05+24:00"}', "at: expected timestamp, found a string of another form"),
    ('{"at": "2026-13-02T03:04:05Z"}', "at: expected timestamp, found a string of another form"),
]
LENIENT: list[tuple[str, Any]] = [
    ('{"l": "1"}', 1),
    ('{"b": "true"}', True),
    ('{"n": "1.5"}', Decimal("1.50")),
    ('{"d": "1e5"}', 1e5),
    ('{"d": Infinity}', math.inf),
    ('{"d": "-Infinity"}', -math.inf),
    ('{"d": 123456789012345678901234567890}', 123456789012345678901234567890.0),
    ('{"s": "a\\ud800b"}', "a\ufffdb"),
]
LENIENT_WRONG = [
    '{"l": "one"}',
    '{"l": "1.5"}',
    '{"l": ""}',
    '{"d": "0x1p3"}',
    '{"d": "1d"}',
    '{"d": "\u0661"}',
    '{"l": NaN}',
    '{"b": "TRUE"}',
    '{"l": 1, "l": 2}',
    '{"d": 1e400}',
    '{"l": "' + "9" * 100_000 + '"}',
]


def test_each_value_is_decoded_or_is_an_error_with_the_path_of_the_field(spark: SparkSession) -> None:
    values = [value.encode() for value, _ in RIGHT]
    values += [value if isinstance(value, bytes) else value.encode() for value, _ in WRONG]
    found = results(decoded(records(spark, values), Json(schema=SCHEMA)))
    for (value, expected), each in zip(RIGHT, found, strict=False):
        assert each.error is None, value
        name = next((name for name in COLUMNS if f'"{name}"' in value), "l")
        assert each.value[name] == expected, value
    for (wrong, reason), each in zip(WRONG, found[len(RIGHT) :], strict=True):
        assert each.value is None, wrong
        assert each.error == reason, wrong


def test_the_lenient_decoder_accepts_deviations_of_other_json_writers(spark: SparkSession) -> None:
    values = [*(value for value, _ in LENIENT), '{"d": NaN}', *LENIENT_WRONG]
    found = results(decoded(records(spark, [each.encode() for each in values]), Json(schema=SCHEMA, lenient=True)))
    for (value, expected), each in zip(LENIENT, found, strict=False):
        assert each.error is None, value
        assert each.value[next(iter(json.loads(value)))] == expected, value
    assert math.isnan(found[len(LENIENT)].value.d)
    for value, each in zip(LENIENT_WRONG, found[len(LENIENT) + 1 :], strict=True):
        assert each.value is None, value
        assert each.error is not None, value


def test_a_repeated_field_of_any_name_is_an_error(spark: SparkSession) -> None:
    fields = [{"name": name, "type": ["null", "long"], "default": None} for name in ("a b", "c.d")]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    values = [b'{"a b": 1, "a b": null}', b'{"a b": null, "c.d": 2}']
    found = results(decoded(records(spark, values), Json(schema=schema)))
    assert [each.error for each in found] == ["a b: occurs twice in one object", None]
    assert found[1].value.asDict() == {"a b": None, "c.d": 2}
