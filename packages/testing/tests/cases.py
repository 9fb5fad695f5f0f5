"""Run the cases of pipelines that a test writes; all tests share one Spark session."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefeed_testing.load import load_cases
from lakefeed_testing.run import TestReport, run_files

Run = Callable[..., TestReport]

AVRO = """
name: trips
source: {kafka: {bootstrap_servers: "${KAFKA_BOOTSTRAP_SERVERS}", topics: [trips]}}
decode:
  avro: {registry: "${SCHEMA_REGISTRY_URL}"}
  metadata: [offset, key]
  on_null: skip
expect:
  fare: {rule: fare >= 0, on_violation: dead_letter}
  zone: {rule: zone <> 'X', on_violation: drop}
dead_letters: {table: lake.nyc.trips_dead}
transform: {sql: "SELECT *, fare * 2 AS twice FROM trips"}
sink: {iceberg: {table: lake.nyc.trips, partition_by: [zone]}}
checkpoint: s3a://lake/checkpoints/trips
tests:
  schemas:
    1: {schema: {type: record, name: Trip, fields: [{name: zone, type: string}, {name: fare, type: double}]}}
    2:
      schema:
        type: record
        name: Trip
        fields:
          - {name: zone, type: string}
          - {name: fare, type: double}
          - {name: tip, type: ["null", double], default: null}
    9: {subject: other-value, schema: {type: record, name: Other, fields: [{name: x, type: string}]}}
  cases:
"""
JSON = """
name: hits
source: {kafka: {bootstrap_servers: localhost:9092, topics: [hits]}}
decode: {json: {schema_ddl: "zip STRING, at TIMESTAMP"}}
sink: {iceberg: {table: lake.web.hits}}
checkpoint: s3a://lake/checkpoints/hits
"""


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    """Return a function that runs the cases in a pipeline file and in more case files."""

    def run(text: str, *cases: str, names: tuple[str, ...] = ()) -> TestReport:
        file = tmp_path / "pipeline.yaml"
        file.write_text(text, "utf-8")
        paths = [tmp_path / f"cases-{number}.yaml" for number in range(len(cases))]
        for path, content in zip(paths, cases, strict=True):
            path.write_text(content, "utf-8")
        return run_files(file, load_cases(file, paths, environment={}), names=names)

    return run


def messages(report: TestReport) -> dict[str, list[str]]:
    """Return the differences of each case as texts."""
    return {result.case: [each.what for each in result.differences] for result in report.results}
