"""CSV files as ``io.lakefeed.produce.CsvFiles`` reads them: the rows and errors of Spark's own format."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from lakefeed_local.produce.sources import read_error

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

OWN = "io.lakefeed.produce.CsvFiles"
OPTIONS = {"mode": "FAILFAST", "header": "true", "inferSchema": "false", "enforceSchema": "false"}
TYPES = {
    "wide": "bigint", "whole": "int", "small": "smallint", "tiny": "tinyint", "ratio": "double", "single": "float",
    "flag": "boolean", "text": "string", "day": "date", "instant": "timestamp", "clock": "timestamp_ntz",
    "price": "decimal(9,2)", "huge": "decimal(38,3)", "last": "string",
}  # fmt: skip
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
WHOLE = ["0", "7", "-7", "+7", "007", "-0", "", '"5"']
NUMBERS = [
    *WHOLE, "0.1", "-0.0", "0.30", "1.", ".5", "-.5", "1e5", "1E-3", "NaN", "Inf", "-Inf", "9007199254740993",
    "9007199254740991.5", "0.00000000000000000000001", "123456789012345678", "-1234567890.123456789012", "16777217",
    "1.7976931348623157e308", "4.9e-324", "3.4028236e38", "1d", "2f", "0x1p3",
]  # fmt: skip
TEXTS = [
    "", "plain", " padded ", '"quoted, with a comma"', '"a ""double"" quote"', '""', "back\\slash", "ä€ 𝄞", "'single'",
    'half "quoted', '"\\"escaped\\""', "tab\tinside", "#comment", "null", "\x7f", "\xa0",
]  # fmt: skip
VALUES: dict[str, list[str]] = {
    "bigint": [*WHOLE, "9223372036854775807", "-9223372036854775808", "999999999999999999", "-123456789012345678"],
    "int": [*WHOLE, "2147483647", "-2147483648"],
    "smallint": [*WHOLE, "32767", "-32768"],
    "tinyint": [*WHOLE, "127", "-128"],
    "double": NUMBERS,
    "float": NUMBERS,
    "boolean": ["true", "false", "TRUE", "False", "", '"true"'],
    "string": TEXTS,
    "date": ["2024-02-29", "0001-01-01", "9999-12-31", "", "1582-10-04"],
    "timestamp": ["2024-02-29T12:34:56.789Z", "2024-02-29 12:34:56", "1900-01-01T00:00:00.000+02:00", "", "2024-02-29"],
    "timestamp_ntz": ["2024-02-29T12:34:56.123456", "1500-01-01T00:00:00", ""],
    "decimal(9,2)": ["1.25", "-0.005", "0", "9999999.99", "", "1e3", "1.005"],
    "decimal(38,3)": ["1.25", "-99999999999999999999999999999999999.999", "", "0"],
}


def rows(spark: SparkSession, form: str, path: Path, *, schema: str = SCHEMA) -> DataFrame:
    return spark.read.format(form).options(**OPTIONS).schema(schema).load(path.as_uri())


def shown(found: DataFrame) -> list[str]:
    """The rows as text, in which NaN equals itself and -0.0 differs from 0.0."""
    return sorted(repr(row) for row in found.collect())


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_those_of_sparks_own_format(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lines = [",".join(chance.choice(VALUES[kind]) for kind in TYPES.values()) for _ in range(1500)]
    lines += ["", "  ", ",".join("" for _ in TYPES)]
    chance.shuffle(lines)
    end = "\r\n" if seed == 1 else "\n"
    (tmp_path / "a.csv").write_text(end.join([",".join(TYPES), *lines]) + ("" if seed == 2 else end))
    expected = shown(rows(spark, "csv", tmp_path))
    assert len(expected) == 1501
    assert shown(rows(spark, OWN, tmp_path)) == expected
    some = ["last", "ratio", "wide"]
    assert shown(rows(spark, OWN, tmp_path).select(*some)) == shown(rows(spark, "csv", tmp_path).select(*some))
    assert rows(spark, OWN, tmp_path).count() == 1501
    kept = "text = 'plain' AND wide > 0"
    assert shown(rows(spark, OWN, tmp_path).where(kept)) == shown(rows(spark, "csv", tmp_path).where(kept))


@pytest.mark.quick
def test_numbers_are_the_nearest_that_the_type_has(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(1)
    texts = [f"{chance.uniform(-1e6, 1e6):.{chance.randrange(17)}f}" for _ in range(20_000)]
    texts += [f"{chance.randrange(-(10**18), 10**18)}" for _ in range(2_000)]
    texts += [f"0.{chance.randrange(10**15):0{chance.randrange(15, 24)}}" for _ in range(2_000)]
    (tmp_path / "a.csv").write_text("\n".join(["wide,ratio", *(f"{text},{text}" for text in texts)]))
    found = rows(spark, OWN, tmp_path, schema="wide float, ratio double").collect()
    assert [row.ratio for row in found] == [float(text) for text in texts]
    expected = rows(spark, "csv", tmp_path, schema="wide float, ratio double").collect()
    assert [row.wide for row in found] == [row.wide for row in expected]


def test_bytes_that_are_no_text_and_folders_with_values(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "part=7"
    folder.mkdir()
    (folder / "a.csv").write_bytes(b"name,id\n\xe4\xf6,1\nok \xe2\x82,2\n\xed\xa0\x80,3\n,4\n")
    schema = "name string, id bigint"
    expected = shown(rows(spark, "csv", tmp_path, schema=schema))
    assert "part=7" in expected[0]
    assert shown(rows(spark, OWN, tmp_path, schema=schema)) == expected


def test_a_file_in_many_parts_gives_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "id,text\n" + "".join(f"{number},{'x' * (number % 50)}\n" for number in range(5000))
    )
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "10000")
    try:
        found = rows(spark, OWN, tmp_path, schema="id bigint, text string")
        assert found.rdd.getNumPartitions() > 5
        assert sorted(row.id for row in found.collect()) == list(range(5000))
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(before))


@pytest.mark.parametrize(
    "line",
    [
        "x,1,a",
        "1.5,1,a",
        "1.,1,a",
        "9223372036854775808,1,a",
        "1,tru,a",
        "1,true",
        "1,true,a,b",
        "-,true,a",
        "1 ,true,a",
    ],
)
def test_errors_are_those_of_sparks_own_format(spark: SparkSession, tmp_path: Path, line: str) -> None:
    from py4j.protocol import Py4JJavaError

    (tmp_path / "a.csv").write_text(f"id,flag,text\n1,true,a\n{line}\n")
    found = []
    for form in ("csv", OWN):
        with pytest.raises((PySparkException, Py4JJavaError)) as raised:
            rows(spark, form, tmp_path, schema="id bigint, flag boolean, text string").collect()
        error = read_error(str(raised.value))
        assert error is not None
        found.append((error.what, error.where, error.hint))
    assert found[0] == found[1]


def test_other_options_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;text\n1;'a;b'\nx;c\n")
    own, by_spark = (
        spark.read.format(form).options(header="true", sep=";", quote="'").schema("id bigint, text string")
        for form in (OWN, "csv")
    )
    assert shown(own.load(tmp_path.as_uri())) == shown(by_spark.load(tmp_path.as_uri()))
