"""For random schemas, all readers find files of lakefeed's encoder equal to those of Iceberg's and Spark's writers."""

import datetime as dt
import math
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakefeed.clients.iceberg.catalogs import make_catalog
from lakefeed.feed.feed import FAST_PATH
from tests.support.any_rows import DAYS, MICROS, AnyRows
from tests.support.catalogs import SqliteCase

SPARKS, OURS = "parquet", "io.lakefeed.parquet.ColumnarParquet"
METRICS = ("record_count", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
ENCODER = b"lakefeed.encoder"
FEW = [range(8)]
ALL = range(1_000, 2_000)
MANY = [ALL[at : at + 50] for at in range(0, len(ALL), 50)]
SEEDS = [
    *(pytest.param(seeds, id="few") for seeds in FEW),
    *(pytest.param(seeds, id=f"from-{seeds.start}", marks=pytest.mark.slow) for seeds in MANY),
]
FIRST, LAST = dt.datetime.min, dt.datetime.max
CASES: dict[str, Callable[[DataType, Any], bool]] = {
    "a boolean": lambda kind, _: isinstance(kind, BooleanType),
    "a byte": lambda kind, _: isinstance(kind, ByteType),
    "a short": lambda kind, _: isinstance(kind, ShortType),
    "an integer": lambda kind, _: isinstance(kind, IntegerType),
    "a float": lambda kind, _: isinstance(kind, FloatType),
    "a double": lambda kind, _: isinstance(kind, DoubleType),
    "a binary": lambda kind, _: isinstance(kind, BinaryType),
    "a struct": lambda kind, _: isinstance(kind, StructType),
    "a decimal in an int": lambda kind, _: isinstance(kind, DecimalType) and kind.precision <= 9,
    "a decimal in a long": lambda kind, _: isinstance(kind, DecimalType) and 9 < kind.precision <= 18,
    "a decimal in bytes": lambda kind, _: isinstance(kind, DecimalType) and kind.precision > 18,
    "a decimal with all digits": lambda kind, value: (
        isinstance(kind, DecimalType) and value is not None and value.as_tuple().digits == (9,) * kind.precision
    ),
    "a negative decimal": lambda _, value: isinstance(value, Decimal) and value < 0,
    "null": lambda _, value: value is None,
    "NaN": lambda _, value: isinstance(value, float) and math.isnan(value),
    "infinity": lambda _, value: isinstance(value, float) and math.isinf(value),
    "-0.0": lambda _, value: isinstance(value, float) and str(value) == "-0.0",
    "the least long": lambda kind, value: isinstance(kind, LongType) and value == -(1 << 63),
    "the greatest long": lambda kind, value: isinstance(kind, LongType) and value == (1 << 63) - 1,
    "an empty string": lambda _, value: value == "",
    "a huge string": lambda _, value: isinstance(value, str) and len(value) > 100_000,
    "an empty binary": lambda _, value: value == b"",
    "an empty array": lambda _, value: value == [],
    "a long array": lambda _, value: isinstance(value, list) and len(value) >= 200,
    "an empty map": lambda _, value: value == {},
    "the first date": lambda kind, value: isinstance(kind, DateType) and value in (min(DAYS), FIRST.date()),
    "the last date": lambda kind, value: isinstance(kind, DateType) and value in (max(DAYS), LAST.date()),
    "the first timestamp": lambda kind, value: (
        isinstance(kind, TimestampType) and value in (min(MICROS), FIRST.replace(tzinfo=dt.UTC))
    ),
    "the last timestamp": lambda kind, value: (
        isinstance(kind, TimestampType) and value in (max(MICROS), LAST.replace(tzinfo=dt.UTC))
    ),
    "the first local time": lambda kind, value: isinstance(kind, TimestampNTZType) and value in (min(MICROS), FIRST),
    "the last local time": lambda kind, value: isinstance(kind, TimestampNTZType) and value in (max(MICROS), LAST),
}
"""Types and values that an encoder may get wrong."""


@pytest.fixture(scope="module")
def catalog(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SqliteCase:
    folder = tmp_path_factory.mktemp("encoder")
    make_catalog(folder / "catalog.db")
    case = SqliteCase(name=f"encoder_{uuid.uuid4().hex[:6]}", folder=folder)
    case.declare(spark)
    spark.sql(f"CREATE NAMESPACE {case.name}.ns")
    return case


@contextmanager
def settings(spark: SparkSession, given: Mapping[str, Any]) -> Iterator[None]:
    """Set Spark settings until the block ends."""
    for key, value in given.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in given:
            spark.conf.unset(key)


def texts(table: pa.Table) -> list[str]:
    """Return the rows as texts; dates and timestamps become numbers, as some exceed the range of Python's types."""
    return [repr(row) for row in zip(*(_numbers(each).to_pylist() for each in table.columns), strict=True)]


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Cast only if needed, because Arrow cannot cast some types to themselves, such as structs with required lists.
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date(column.type) else column


def read_by_arrow(file: Path) -> list[str]:
    return texts(parquet.ParquetFile(file, coerce_int96_timestamp_unit="us").read())


def differences_by_duckdb(one: Path, other: Path) -> int:
    with duckdb.connect() as connection:
        query = f"SELECT count(*) FROM (SELECT * FROM '{one}' EXCEPT ALL SELECT * FROM '{other}')"
        return int(connection.execute(query).fetchall()[0][0])


def statistics(chunk: parquet.ColumnChunkMetaData) -> str:
    """Return the null count and the raw bounds as text, because Python cannot represent every date in the bounds."""
    found = chunk.statistics
    if found is None:
        return "none"
    return repr((found.null_count, *((found.min_raw, found.max_raw) if found.has_min_max else ())))


def assert_same_files(ours: Path, theirs: Path, rows: int, what: str) -> None:
    """Check that two Parquet files of the same rows have the same schema, metadata, statistics and compression."""
    footer, expected = parquet.read_metadata(ours), parquet.read_metadata(theirs)
    assert footer.num_rows == expected.num_rows == rows, what
    assert footer.schema.equals(expected.schema), what
    assert ENCODER in footer.metadata, what
    assert ENCODER not in expected.metadata, what
    assert {key: value for key, value in footer.metadata.items() if key != ENCODER} == expected.metadata, what
    if footer.num_row_groups == expected.num_row_groups == 1:
        for at in range(footer.num_columns):
            mine, other = footer.row_group(0).column(at), expected.row_group(0).column(at)
            assert mine.num_values == other.num_values, what
            assert mine.compression == other.compression, what
            assert statistics(mine) == statistics(other), f"{what}: {mine.path_in_schema}"
    assert read_by_arrow(ours) == read_by_arrow(theirs), what
    assert differences_by_duckdb(ours, theirs) == differences_by_duckdb(theirs, ours) == 0, what


def written_by_spark(frame: DataFrame, folder: Path, form: str, options: Mapping[str, Any]) -> Path:
    target = folder / uuid.uuid4().hex
    frame.write.format(form).options(**options).save(f"file://{target}")
    [file] = target.glob("part-*")
    return file


def assert_parquet_is_sparks(spark: SparkSession, seed: int, folder: Path) -> None:
    drawn = AnyRows(seed)
    options: dict[str, Any] = {"compression": drawn.pick("zstd", "snappy", "gzip", "none", "lz4_raw")}
    if drawn.pick(True, False):
        options |= {"parquet.page.size": 900, "parquet.page.row.count.limit": 30, "parquet.dictionary.page.size": 700}
    if drawn.pick(True, False):
        options |= {"parquet.block.size": 20_000}
    # Use no legacy format if the schema has lists of required values: such files are written by Spark's encoder.
    legacy = drawn.pick(True, False, False) and '"containsNull":false' not in drawn.schema.json()
    given = {
        "spark.sql.parquet.outputTimestampType": drawn.pick("INT96", "TIMESTAMP_MICROS"),
        "spark.sql.parquet.writeLegacyFormat": legacy,
        FAST_PATH: True,
    }
    frame = drawn.frame(spark, drawn.pick(0, 1, 60, 400))
    what = f"seed {seed}, {drawn.schema.simpleString()}, {options}, {given}"
    with settings(spark, given):
        ours, theirs = (written_by_spark(frame, folder, form, options) for form in (OURS, SPARKS))
    assert ours.name.partition("-c000")[2] == theirs.name.partition("-c000")[2], what
    rows = drawn.texts(frame)
    for file in (ours, theirs):
        assert drawn.texts(spark.read.parquet(f"file://{file}")) == rows, f"{what}: {file}"
    assert_same_files(ours, theirs, len(rows), what)


def create_table(spark: SparkSession, catalog: SqliteCase, frame: DataFrame, properties: Mapping[str, Any]) -> str:
    name = f"{catalog.name}.ns.t{uuid.uuid4().hex[:10]}"
    writer = frame.writeTo(name).using("iceberg").tableProperty("format-version", "2")
    for key, value in properties.items():
        writer = writer.tableProperty(key, str(value))
    writer.create()
    return name


def file_of(spark: SparkSession, table: str) -> Path:
    [row] = spark.table(f"{table}.files").select("file_path").collect()
    return Path(row.file_path.removeprefix("file:"))


def assert_table_is_icebergs(spark: SparkSession, catalog: SqliteCase, seed: int) -> None:
    drawn = AnyRows(seed)
    properties = {
        "write.parquet.compression-codec": drawn.pick("zstd", "snappy", "gzip", "uncompressed"),
        "write.parquet.page-row-limit": drawn.pick(20, 20_000),
        "write.parquet.row-group-size-bytes": drawn.pick(20_000, 128 << 20),
        "write.metadata.metrics.default": drawn.pick("truncate(16)", "full", "counts"),
    }
    what = f"seed {seed}, {drawn.schema.simpleString()}, {properties}"
    frame = drawn.frame(spark, drawn.pick(1, 60, 400))
    given = drawn.texts(frame)
    found: list[tuple[list[str], Path, list[str]]] = []
    for fast in (True, False):
        with settings(spark, {FAST_PATH: fast}):
            name = create_table(spark, catalog, frame, properties)
        metrics = [repr(each) for each in spark.table(f"{name}.files").select(*METRICS).collect()]
        assert drawn.texts(spark.table(name)) == given, what
        [log] = spark.table(f"{name}.metadata_log_entries").orderBy("timestamp").select("file").collect()[-1:]
        by_pyiceberg = texts(StaticTable.from_metadata(log.file).scan().to_arrow())
        found.append((metrics, file_of(spark, name), by_pyiceberg))
        spark.sql(f"DROP TABLE {name}")
    (metrics, ours, rows), (expected, theirs, others) = found
    assert metrics == expected, what
    assert rows == others, what
    assert_same_files(ours, theirs, len(given), what)


@pytest.mark.parametrize("seeds", SEEDS)
def test_files_of_random_schemas_equal_those_that_spark_writes(
    spark: SparkSession, tmp_path: Path, seeds: range
) -> None:
    for seed in seeds:
        assert_parquet_is_sparks(spark, seed, tmp_path)


@pytest.mark.parametrize("seeds", SEEDS)
def test_tables_of_random_schemas_equal_those_that_iceberg_writes(
    spark: SparkSession, catalog: SqliteCase, seeds: range
) -> None:
    for seed in seeds:
        assert_table_is_icebergs(spark, catalog, seed)


def parts(kind: DataType, value: Any, *, nested: bool = False) -> Iterator[tuple[DataType, Any, bool]]:
    """Yield a value and all values inside it, with their types and whether they are nested."""
    yield kind, value, nested
    if value is None:
        return
    match kind:
        case StructType():
            for each, part in zip(kind.fields, value, strict=True):
                yield from parts(each.dataType, part, nested=True)
        case ArrayType():
            for item in value:
                yield from parts(kind.elementType, item, nested=True)
        case MapType():
            for key, item in value.items():
                yield from parts(kind.keyType, key, nested=True)
                yield from parts(kind.valueType, item, nested=True)


def test_the_random_rows_contain_values_that_are_hard_to_encode() -> None:
    missing = {(case, nested) for case in CASES for nested in (False, True)}
    for seed in ALL:
        if not missing:
            break
        drawn = AnyRows(seed)
        for row in drawn.rows(60):
            for field, value in zip(drawn.schema.fields, row, strict=True):
                for kind, part, nested in parts(field.dataType, value):
                    missing -= {(case, nested) for case, at in missing if at == nested and CASES[case](kind, part)}
    assert not missing


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an unknown option": ({"parquet.bloom.filter.enabled": "true"}, {}, "id"),
    "pages of version 2": ({"parquet.writer.version": "v2"}, {}, "id"),
    "another codec": ({"compression": "lz4"}, {}, "id"),
    "rebased dates": ({}, {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"}, "date'0001-01-01' AS day"),
    "rebased timestamps": (
        {},
        {"spark.sql.parquet.int96RebaseModeInWrite": "LEGACY", "spark.sql.parquet.outputTimestampType": "INT96"},
        "timestamp'0001-01-01 00:00:00Z' AS at",
    ),
    "several open files": ({}, {"spark.sql.maxConcurrentOutputFileWriters": 2}, "id"),
    "a type": ({}, {}, "INTERVAL '1' DAY AS span"),
    "an older form of lists": ({}, {"spark.sql.parquet.writeLegacyFormat": True}, "array(id) AS ids"),
}
"""Options, settings and a column for which Spark writes the files itself."""


@pytest.mark.parametrize("why", REFUSED)
def test_spark_writes_files_with_options_that_the_encoder_lacks(spark: SparkSession, tmp_path: Path, why: str) -> None:
    options, given, column = REFUSED[why]
    rows = spark.range(100).selectExpr(column).coalesce(1)
    with settings(spark, {**given, FAST_PATH: True}):
        ours, theirs = (written_by_spark(rows, tmp_path, form, options) for form in (OURS, SPARKS))
    assert ours.read_bytes() == theirs.read_bytes()
    with settings(spark, {FAST_PATH: False}):
        off = written_by_spark(spark.range(100).coalesce(1), tmp_path, OURS, {})
    assert ENCODER not in parquet.read_metadata(off).metadata


def test_the_encoder_uses_the_configured_compression_level(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(5_000).selectExpr("id", "sha2(CAST(id AS STRING), 256) AS text").coalesce(1)
    with settings(spark, {FAST_PATH: True}):
        fast, small = (
            written_by_spark(
                rows, tmp_path, OURS, {"compression": "zstd", "parquet.compression.codec.zstd.level": level}
            )
            for level in (1, 19)
        )
        # The setting is zstd's compression level, so it does not affect gzip.
        other = written_by_spark(
            rows, tmp_path, OURS, {"compression": "gzip", "parquet.compression.codec.zstd.level": 19}
        )
    assert small.stat().st_size < fast.stat().st_size
    for file in (fast, small, other):
        assert ENCODER in parquet.read_metadata(file).metadata
        assert spark.read.parquet(f"file://{file}").count() == 5_000


@pytest.mark.parametrize("name", ["write.parquet.bloom-filter-enabled.column.id", "parquet.some.setting"])
def test_iceberg_writes_tables_with_a_property_that_the_encoder_does_not_know(
    spark: SparkSession, catalog: SqliteCase, name: str
) -> None:
    rows = spark.range(100).coalesce(1)
    with settings(spark, {FAST_PATH: True}):
        found = [
            ENCODER in parquet.read_metadata(file_of(spark, create_table(spark, catalog, rows, properties))).metadata
            for properties in ({}, {name: "true"})
        ]
    assert found == [True, False]
