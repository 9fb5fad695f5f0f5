"""``lakefeed check`` reports the mistakes in a pipeline file with their lines, without starting the feed."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from lakefeed.cli.main import root
from lakefeed.operations.preflight.analysis import analyze
from tests.support.blocks import ROOT, blocks_of
from tests.support.feed import Feed

FILE = """\
name: hits
source: {kafka: {bootstrap_servers: "127.0.0.1:1", topics: [a, b]}}
decode: {json: {schema_ddl: "zip STRING, at TIMESTAMP"}}
transform:
  sql: SELECT zip, at FROM hits
sink:
  iceberg: {table: lake.web.hits}
checkpoint: s3a://lake/checkpoints/hits
"""
PLAIN = "  sql: SELECT zip, at FROM hits\n"
ICEBERG = "  iceberg: {table: lake.web.hits}\n"
# Each mistake has four values: the text to replace, the new text, the reported line, and a part of the message.
MISTAKES = {
    "sql": (PLAIN, "  sql: SELEC zip FROM hits\n", 5, "SELEC"),
    "column": (PLAIN, "  sql: SELECT zipp FROM hits\n", 5, "zipp"),
    "no watermark": (PLAIN, "  sql: SELECT window(at, '1 hour'), count(*) AS n FROM hits GROUP BY 1\n", 5, "watermark"),
    "function": (PLAIN, '  steps: {a: {python: "nowhere:f"}}\n', 5, "no Python module nowhere"),
    "option of a function": (
        PLAIN,
        '  steps: {a: {python: "textwrap:indent", options: {prefx: x}}}\n',
        5,
        "no parameter prefx",
    ),
    "option of a sink": (ICEBERG, "  iceberg: {table: lake.web.hits, partition_bye: [zip]}\n", 7, "partition_by"),
    "mode of a sink": (ICEBERG, "  parquet: {path: s3a://lake/x, mode: upsert}\n", 7, "mode"),
    "name of a metadata column": (PLAIN, "  sql: SELECT zip AS _file FROM hits\n", 5, "_file is reserved"),
    "twins in case": (
        PLAIN,
        "  sql: SELECT named_struct('a', 1, 'A', 2) AS zip FROM hits\n",
        5,
        "two columns would have the name zip.A",
    ),
    "type of a partition": (
        ICEBERG,
        "  iceberg: {table: lake.web.hits, partition_by: [days(zip)]}\n",
        7,
        "days(zip) cannot partition a column of type STRING",
    ),
    "column of files": (ICEBERG, "  files: {path: s3a://lake/x, partition_by: [day]}\n", 7, "'day'"),
}
MANY = FILE.replace("lake.web.hits}", 'lake.web.{topic}"}').replace("{table: lake", '{table: "lake')
MANY = MANY.replace("checkpoint: s3a://lake/checkpoints/hits\n", "")


@pytest.fixture
def shell(feed: Feed, lake: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.export(monkeypatch)


def said(path: Path, text: str) -> tuple[int, str]:
    path.write_text(text)
    done = CliRunner().invoke(root, ["check", str(path)], catch_exceptions=False, standalone_mode=False)
    return done.return_value or 0, done.stdout


@pytest.mark.quick
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_with_its_line(shell: None, tmp_path: Path, name: str) -> None:
    right, wrong, line, message = MISTAKES[name]
    status, text = said(tmp_path / "pipeline.yaml", FILE.replace(right, wrong))
    assert status == 2
    assert f"pipeline.yaml:{line}:" in text
    assert message in text


@pytest.mark.quick
def test_check_of_a_valid_file_reports_success(shell: None, tmp_path: Path) -> None:
    assert said(tmp_path / "pipeline.yaml", FILE)[0] == 0
    assert said(tmp_path / "pipeline.yaml", MANY)[0] == 0


def test_transforms_are_checked_for_sources_other_than_kafka(shell: None, tmp_path: Path) -> None:
    files = FILE.replace(
        'kafka: {bootstrap_servers: "127.0.0.1:1", topics: [a, b]}',
        "files: {path: s3a://lake/nothing-there, format: csv, schema_ddl: 'zip STRING, at TIMESTAMP'}",
    ).replace('decode: {json: {schema_ddl: "zip STRING, at TIMESTAMP"}}\n', "")
    assert said(tmp_path / "pipeline.yaml", files) == (0, f"{tmp_path / 'pipeline.yaml'}: no mistakes\n")
    status, text = said(tmp_path / "pipeline.yaml", files.replace("SELECT zip", "SELECT zipp"))
    assert (status, "zipp" in text, "pipeline.yaml:4:" in text) == (2, True, True)


@pytest.mark.parametrize("kind", ["protobuf", "json"])
def test_columns_of_a_schema_file_that_iceberg_refuses_are_reported(
    feed: Feed, lake: SparkSession, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "a.proto").write_text('syntax = "proto3"; message A { int64 id = 1; int32 _pos = 2; }')
    columns = lake.createDataFrame([], "id BIGINT, _pos INT").schema
    (tmp_path / "a.json").write_text(columns.json())
    file = tmp_path / {"protobuf": "a.proto", "json": "a.json"}[kind]
    config = feed.pipeline(
        decode={kind: {"schema_file": str(file)}}, sink={"iceberg": {"table": feed.table, "partition_by": ["days(id)"]}}
    ).config
    found = analyze(config, connections=feed.connections, spark=lambda: lake, connect=True)
    assert [(each.key, each.what.partition(",")[0]) for each in found] == [
        (f"decode.{kind}", "the name _pos is reserved for a metadata column of Iceberg"),
        ("sink.iceberg.partition_by.0", "days(id) cannot partition a column of type LONG"),
    ]


def test_transforms_of_a_kinesis_stream_are_checked(shell: None, tmp_path: Path) -> None:
    stream = FILE.replace('kafka: {bootstrap_servers: "127.0.0.1:1", topics: [a, b]}', "kinesis: {stream: hits}")
    assert said(tmp_path / "pipeline.yaml", stream)[0] == 0
    status, text = said(tmp_path / "pipeline.yaml", stream.replace("SELECT zip", "SELECT zipp"))
    assert (status, "zipp" in text, "pipeline.yaml:5:" in text) == (2, True, True)


def test_joined_streams_are_checked(shell: None, tmp_path: Path) -> None:
    joined = blocks_of(ROOT / "docs" / "transforms.md")
    [text] = [block.text for block in joined if block.language == "yaml" and "LEFT JOIN" in block.text]
    file = f"name: bought\ncheckpoint: s3a://lake/checkpoints/bought\n{text}".replace(
        "${KAFKA_BOOTSTRAP_SERVERS}", "127.0.0.1:1"
    )
    assert said(tmp_path / "pipeline.yaml", file) == (0, f"{tmp_path / 'pipeline.yaml'}: no mistakes\n")
    status, found = said(tmp_path / "pipeline.yaml", file.replace("orders.price", "orders.prize"))
    assert (status, "prize" in found) == (2, True)
    twice = file.replace("FROM clicks LEFT JOIN orders", "FROM clicks LEFT JOIN clicks AS orders")
    status, found = said(tmp_path / "pipeline.yaml", twice)
    assert (status, "has to read each stream exactly once" in found) == (2, True)


def test_the_common_transform_and_the_transforms_of_single_topics_are_checked(shell: None, tmp_path: Path) -> None:
    status, text = said(tmp_path / "pipeline.yaml", MANY.replace("zip, at FROM", "zipp, at FROM"))
    assert (status, "zipp" in text, "pipeline.yaml:5:" in text) == (2, True, True)

    own = "tables:\n  topics:\n    b:\n      transform:\n        sql: SELECT nothing FROM hits\n"
    status, text = said(tmp_path / "pipeline.yaml", MANY + own)
    assert (status, "nothing" in text, "pipeline.yaml:12:" in text) == (2, True, True)

    grouped = "  sql: SELECT zip, count(*) AS n FROM hits GROUP BY zip\n  output_mode: update\n"
    sink = MANY.replace('{topic}"', '{topic}", mode: upsert, keys: [zip]')
    status, text = said(tmp_path / "pipeline.yaml", sink.replace(PLAIN, grouped))
    assert status == 2
    assert "state" in text


def test_sql_is_parsed_even_if_the_file_has_other_mistakes(shell: None, tmp_path: Path) -> None:
    """The file has a second mistake, and only a registry that cannot be reached knows the columns."""
    registry = FILE.replace('json: {schema_ddl: "zip STRING, at TIMESTAMP"}', 'avro: {registry: "http://127.0.0.1:1"}')
    wrong = registry.replace("SELECT zip", "SELECT zip zip zip") + "expect: {a: {rule: zip >}}\n"
    for text, mistakes in ((wrong, 2), (f"{wrong}foo: 1\n", 3)):
        status, message = said(tmp_path / "pipeline.yaml", text)
        assert (status, "zip" in message, message.splitlines()[-1].endswith(f"{mistakes} errors")) == (2, True, True), (
            message
        )
        assert "pipeline.yaml:5:8: error: Spark cannot parse this SQL" in message
        assert "pipeline.yaml:9:20: error: Spark cannot parse this expression" in message
