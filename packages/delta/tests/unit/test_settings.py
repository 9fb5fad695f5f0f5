"""What a Delta table cannot hold, and what the sink does not offer, is refused by name before a run."""

from pathlib import Path

import pytest

from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.pipeline import Pipeline

FILE = """
name: trips
source: {{kafka: {{bootstrap_servers: "b:9092", topics: [trips]}}}}
decode: {{json: {{schema_ddl: "{columns}"}}}}
sink: {{delta: {{path: s3a://lake/tables/trips{more}}}}}
checkpoint: s3a://lake/checkpoints/trips
"""


def problems(folder: Path, *, columns: str = "id BIGINT", more: str = "") -> str:
    file = folder / "pipeline.yaml"
    file.write_text(FILE.format(columns=columns, more=more))
    try:
        Pipeline.from_file(file, environment={})
    except LakefeedError as error:
        return str(error)
    return ""


def test_a_file_with_the_sink_is_read(tmp_path: Path) -> None:
    assert problems(tmp_path, more=", partition_by: [id]") == ""


def test_an_upsert_is_refused_by_name(tmp_path: Path) -> None:
    assert "mode upsert is not offered" in problems(tmp_path, more=", mode: upsert")


def test_a_name_that_parquet_files_do_not_allow_needs_column_mapping(tmp_path: Path) -> None:
    columns = "id BIGINT, `zip code` STRING"
    assert "'zip code' has a sign" in problems(tmp_path, columns=columns)
    mapping = ", properties: {delta.columnMapping.mode: name}"
    assert problems(tmp_path, columns=columns, more=mapping) == ""


def test_a_path_is_in_a_store_or_on_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(columns="id BIGINT", more="").replace("s3a://lake/tables/trips", "gs://lake/trips"))
    with pytest.raises(ConfigError, match="s3a://bucket/path"):
        Pipeline.from_file(file, environment={})
