"""The cases of the examples and of docs/test-a-pipeline.md pass, and the pytest fixtures work."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from lakefeed_testing.fixtures import LandRecords, TestRegistry, TestTopic, run_cases
from packages.testing.tests.cases import AVRO, JSON, Run, messages
from tests.support.blocks import ROOT, blocks_of


def test_the_cases_of_an_example_pass(spark: SparkSession) -> None:
    report = run_cases(ROOT / "examples" / "isp_hits" / "by_zip_and_day.yaml")
    assert messages(report) == {"a hit is of the day that it has in UTC": [], "a time that is none stops the feed": []}


def test_the_fixtures_land_records_with_a_pipeline_file(
    spark: SparkSession,
    tmp_path: Path,
    lakefeed_topic: Callable[[str], TestTopic],
    lakefeed_registry: TestRegistry,
    lakefeed_table: LandRecords,
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(AVRO.partition("tests:")[0], "utf-8")
    fields = [{"name": "zone", "type": "string"}, {"name": "fare", "type": "double"}]
    schema_id = lakefeed_registry.register({"type": "record", "name": "Trip", "fields": fields})
    trips = lakefeed_topic("trips")
    trips.send({"zone": "A", "fare": 1.5}, key="k", schema_id=schema_id)
    trips.send({"zone": "A", "fare": -1})
    trips.send(None)
    trips.send(hex="ff")
    landed = lakefeed_table(file, trips)
    assert landed.rows == [{"zone": "A", "fare": 1.5, "kafka_offset": 0, "kafka_key": "k", "twice": 3.0}]
    assert [letter.offset for letter in landed.dead_letters] == [1, 3]
    assert (landed.skipped, landed.error) == (1, None)


def test_the_test_shown_on_the_page_passes(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lakefeed_topic: Callable[[str], TestTopic],
    lakefeed_registry: TestRegistry,
    lakefeed_table: LandRecords,
) -> None:
    """Run the test of docs/test-a-pipeline.md with the pipeline file at the top of the page."""
    blocks = blocks_of(ROOT / "docs" / "test-a-pipeline.md")
    names: dict[str, Any] = {}
    for block in blocks:
        if block.test is not None:
            exec(compile(block.text, str(block), "exec"), names)
    assert names["pytest_plugins"] == ["lakefeed_testing.fixtures"]
    monkeypatch.chdir(tmp_path)
    Path("pipeline.yaml").write_text(next(block.text for block in blocks if block.language == "yaml"))
    names["test_a_negative_fare_is_a_dead_letter"](lakefeed_topic, lakefeed_registry, lakefeed_table)


def test_the_cases_shown_on_the_page_pass(run: Run) -> None:
    """Run the cases of docs/test-a-pipeline.md; the file at the top of the page completes each fragment."""
    shown = [
        yaml.safe_load(block.text)
        for block in blocks_of(ROOT / "docs" / "test-a-pipeline.md")
        if block.language == "yaml"
    ]
    whole = {key: shown[0][key] for key in ("name", "source", "sink", "checkpoint")}
    passed: list[str] = []
    for fragment in shown:
        report = run(yaml.safe_dump({**whole, **fragment}))
        assert messages(report) == {case: [] for case in fragment["tests"]["cases"]}
        passed.extend(messages(report))
    assert len(passed) == 4


def test_rows_are_listed_in_the_order_of_the_batches(
    spark: SparkSession, tmp_path: Path, lakefeed_topic: Callable[[str], TestTopic], lakefeed_table: LandRecords
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(JSON)
    hits = lakefeed_topic("hits")
    for number in range(30):
        hits.send({"zip": str(number)}, partition=number % 5, batch=number // 10 + 1)
    assert [row["zip"] for row in lakefeed_table(file, hits).rows] == [str(number) for number in range(30)]
