"""Lines of CSV are decoded by the Java class of this package."""

import csv
import io
import math
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.records.decode import decoded
from lakefeed_csv.settings import CsvFormat
from lakefeed_encode.encode import to_records
from tests.spark.test_encode_formats import values
from tests.support.records import records, results

CSV_ROWS: list[tuple[Any, ...]] = [(1, 'a "b", c\nd', 0.5), (2, "", None), (3, None, -1.0), (4, " x ", 1e300)]


@pytest.mark.quick
def test_pythons_csv_module_and_the_decoder_read_the_encoded_lines(spark: SparkSession) -> None:
    ddl = "id BIGINT, name STRING, price DOUBLE"
    made = values(to_records(spark.createDataFrame(CSV_ROWS, ddl).coalesce(1), format="csv", topic="t"))
    found = results(decoded(records(spark, made), CsvFormat(schema_ddl=ddl).decoder()))
    assert [tuple(each.value) for each in found] == CSV_ROWS
    [parsed] = csv.reader(io.StringIO(made[0].decode(), newline=""))
    assert parsed == ["1", 'a "b", c\nd', "0.5"]


def test_the_decoder_reads_lines_that_pythons_csv_module_has_written(spark: SparkSession) -> None:
    lines = []
    for row in CSV_ROWS:
        text = io.StringIO(newline="")
        csv.writer(text, quoting=csv.QUOTE_NONNUMERIC).writerow(row)
        lines.append(text.getvalue().encode())
    spec = CsvFormat(schema_ddl="id BIGINT, name STRING, price DOUBLE").decoder()
    found = results(decoded(records(spark, lines), spec))
    assert tuple(found[0].value) == CSV_ROWS[0]
    assert tuple(found[3].value) == CSV_ROWS[3]


BROKEN_CSV = {
    b"1,a": "2 value(s) in the line, 3 expected",
    b"1,a,2.0,4": "4 value(s) in the line, 3 expected",
    b"x,a,2.0": "id: expected bigint, found a text of another form",
    b"1,a,1.5.2": "price: expected double, found a text of another form",
    b'1,"a,2.0': "the quote at character 2 is not closed",
    b'1,"a"b,2.0': "something follows the line after character 5",
    b"1,a,2.0\n2,b,3.0": "something follows the line after character 7",
    b"1,\xff,2.0": "not UTF-8",
    b"": "empty: 0 bytes",
    b",a,2.0": "id: missing or null",
    b"9223372036854775808,a,2.0": "id: expected bigint, found a text of another form",
    b"1e999999999,a,2.0": "id: expected bigint, found a text of another form",
}


def test_a_wrong_line_is_an_error_with_its_reason(spark: SparkSession) -> None:
    spec = CsvFormat(schema_ddl="id BIGINT NOT NULL, name STRING, price DOUBLE").decoder()
    found = results(decoded(records(spark, list(BROKEN_CSV)), spec))
    for (line, why), result in zip(BROKEN_CSV.items(), found, strict=True):
        assert result.value is None, line
        assert why in result.error, line


def test_the_settings_delimiter_quote_escape_and_null_value_are_applied(spark: SparkSession) -> None:
    spec = CsvFormat(
        schema_ddl="a STRING, b INT, c DATE", delimiter=";", quote="'", escape="\\", null_value="NULL"
    ).decoder()
    lines = [rb"'it\'s; \\ ok';5;2026-01-02", b"NULL;NULL;NULL", b"'NULL';1;2026-01-02"]
    found = results(decoded(records(spark, lines), spec))
    assert [each.error for each in found] == [None] * 3
    assert (found[0].value.a, found[0].value.b, str(found[0].value.c)) == (r"it's; \ ok", 5, "2026-01-02")
    assert tuple(found[1].value) == (None, None, None)
    assert found[2].value.a == "NULL"


def test_numbers_are_decoded_exactly_or_refused(spark: SparkSession) -> None:
    cases: list[tuple[str, Any]] = [
        ("1,1.5,2.25", (1, 1.5, Decimal("2.25"))),
        ("1e2,NaN,1e2", (100, None, Decimal("100.00"))),
        ("\ufeff1,-Infinity,1", (1, -math.inf, Decimal("1.00"))),
        ("\u0661,1,1", "a: expected bigint, found a text of another form"),
        ("1,0x1p3,1", "b: expected double, found a text of another form"),
        ("1,1d,1", "b: expected double, found a text of another form"),
        ("1,9007199254740993,1", "b: expected double, found a text of another form"),
        ("1,1," + "9" * 100_000, "c: expected decimal(10,2), found a text of another form"),
        ("1,1,0." + "0" * 100_000 + "1", "c: expected decimal(10,2), found a text of another form"),
        ("9" * 100_000 + ",1,1", "a: expected bigint, found a text of another form"),
        ("1,1,1\r\n", (1, 1.0, Decimal("1.00"))),
        ("1,1,1\n\n", "something follows the line after character 5"),
        ("1,1,1,,,", "6 value(s) in the line, 3 expected"),
    ]
    spec = CsvFormat(schema_ddl="a BIGINT, b DOUBLE, c DECIMAL(10,2)").decoder()
    found = results(decoded(records(spark, [line.encode() for line, _ in cases]), spec))
    for (line, expected), each in zip(cases, found, strict=True):
        if isinstance(expected, str):
            assert each.error == expected, line[:80]
        else:
            assert each.error is None, line
            assert all(
                one == two or (two is None and math.isnan(one)) for one, two in zip(each.value, expected, strict=True)
            )
