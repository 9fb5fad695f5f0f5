"""Each example has a comment with its commands, and an expected result that a test compares."""

from pathlib import Path

import pytest

from lakefeed.config.loading.load import read
from tools.examples import commands
from tools.expected import EXAMPLES

ROOT = Path(__file__).parents[3]
# live.yaml belongs to the notebooks in its folder; other tests run the other two files.
WITHOUT_RESULT = {"notebooks/live.yaml", "kinesis/pipeline.yaml", "kubernetes/pipeline.yaml"}
FILES = sorted(str(each.relative_to(ROOT / "examples")) for each in (ROOT / "examples").glob("*/*.yaml"))
ADDRESSES = {
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "SCHEMA_REGISTRY_URL": "http://127.0.0.1:1",
    "LAKEFEED_CATALOG_URI": "jdbc:sqlite:/nowhere/lake.db",
    "LAKEFEED_WAREHOUSE": "s3://lake/warehouse",
    "ELASTICSEARCH_URL": "http://127.0.0.1:1",
    "DATABASE_URL": "jdbc:postgresql://127.0.0.1:1/shop",
    "DATABASE_USER": "feeder",
    "DATABASE_PASSWORD": "of a test",
    "KAFKA_PASSWORD": "of a test",
    "PWD": str(ROOT),
}


def test_each_example_has_an_expected_result() -> None:
    assert {each.file for each in EXAMPLES} == set(FILES) - WITHOUT_RESULT


@pytest.mark.parametrize("file", FILES)
def test_an_example_has_its_commands_and_no_mistakes(file: str) -> None:
    assert commands(ROOT / "examples" / file)
    assert [str(each) for each in read(ROOT / "examples" / file, environment=ADDRESSES).problems] == []


@pytest.mark.parametrize("file", FILES)
def test_the_quickstart_lists_the_example(file: str) -> None:
    folder = file.partition("/")[0]
    assert f"](../examples/{folder}/" in (ROOT / "docs" / "quickstart.md").read_text("utf-8")
