"""Load the cases of a pipeline; a mistake is reported with its file and line."""

from pathlib import Path

import pytest

from lakefeed.errors import ConfigError
from lakefeed_testing.load import load_cases

PIPELINE = """
name: trips
source: {kafka: {bootstrap_servers: "${BROKERS_OF_NO_ONE}", topics: [trips]}}
decode: {json: {schema_ddl: "zone STRING, fare DOUBLE"}}
transform:
  sql: SELECT * FROM trips
sink: {iceberg: {table: lake.nyc.trips}}
checkpoint: s3a://lake/checkpoints/trips
"""
CASES = """cases:
  one:
    records: [{value: {zone: A}}]
  two:
    records: [{value: null}]
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    return folder / "pipeline.yaml"


def test_the_cases_in_a_folder_are_added_to_those_of_the_pipeline_file(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    pipeline = write(tmp_path, pipeline=f"{PIPELINE}tests:\n  cases:\n    own: {{records: [{{text: a}}]}}\n")
    write(tmp_path / "cases", first=CASES)
    files = load_cases(pipeline, [tmp_path / "cases"], environment={})
    assert [list(file.cases) for file in files] == [["own"], ["one", "two"]]
    assert files[0].where("own") == f"{pipeline}:11"
    assert files[1].where("two") == f"{tmp_path}/cases/first.yaml:4"


def test_only_variables_that_affect_results_must_be_set(tmp_path: Path) -> None:
    pipeline = write(tmp_path, pipeline=PIPELINE.replace("FROM trips", "FROM trips WHERE zone = '${ZONE}'"), c=CASES)
    with pytest.raises(ConfigError) as found:
        load_cases(pipeline, [tmp_path / "c.yaml"], environment={})
    assert "'transform.sql' is SELECT * FROM trips WHERE zone = '${ZONE}', but the cases need its value" in str(
        found.value
    )
    assert load_cases(pipeline, [tmp_path / "c.yaml"], environment={"ZONE": "A"})


@pytest.mark.parametrize(
    ("before", "after", "message", "line"),
    [
        ("value: null", "valeu: null", "unknown option 'valeu'", 5),
        ("value: null", "hex: '0'", "hex is not hexadecimal", 5),
        ("value: null", "value: null, text: a", "a record requires one of value, text and hex", 5),
        ("value: null", "value: null, batch: 3", "records[0] is in batch 3, after one in batch 1", 5),
        ("records: [{value: null}]", "rows: []", "'records' is missing", 4),
    ],
)
def test_the_error_for_a_mistake_in_a_case_names_the_line(
    tmp_path: Path, before: str, after: str, message: str, line: int
) -> None:
    pipeline = write(tmp_path, pipeline=PIPELINE, c=CASES.replace(before, after))
    with pytest.raises(ConfigError) as found:
        load_cases(pipeline, [tmp_path / "c.yaml"], environment={})
    assert message in str(found.value)
    assert f"{tmp_path}/c.yaml:{line}:" in str(found.value)


def test_a_pipeline_without_cases_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no case to run"):
        load_cases(write(tmp_path, pipeline=PIPELINE), environment={})
