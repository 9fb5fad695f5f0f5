"""Pipeline files in README and docs are valid, and the code on a page is that of a tested package."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakefeed.config.loading.load import read
from lakefeed.config.problem import errors_of
from tests.support.blocks import blocks_of, every_block

ROOT = Path(__file__).parents[3]
OWN = "tests/unit/project/test_documented_code.py"
ARCHIVE = ROOT / "tests" / "support" / "sqlite_archive"
VARIABLES = {
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "SCHEMA_REGISTRY_URL": "http://127.0.0.1:8081",
    "LAKEFEED_CATALOG_URI": "jdbc:sqlite:/nowhere/lake.db",
    "LAKEFEED_WAREHOUSE": "s3://lake/warehouse",
    **dict.fromkeys(
        (
            *("SPARK_AUTHENTICATE_SECRET", "CATALOG_PASSWORD", "CATALOG_CREDENTIAL", "PASSWORD", "DATABASE_PASSWORD"),
            *("SEARCH_PASSWORD", "REGISTRY_SECRET", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "KAFKA_USER"),
            *("KAFKA_PASSWORD", "OTLP_TOKEN", "OPENLINEAGE_API_KEY", "SPARK_UI_KEY", "ALERTMANAGER_AUTHORIZATION"),
            *("SMTP_PASSWORD", "PAGER_TOKEN"),
        ),
        "not-a-secret",
    ),
    "OPENLINEAGE_PARENT_ID": "airflow/load.trips/0197ae0c-5b1f-7c3e-9d2a-3f1b6c8d0e11",
    "SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/T0/B0/not-a-secret",
}
HASH = "$argon2id$v=19$m=65536,t=3,p=4$SpI29fPNBr5AkxTMZs/+xw$WNXGRSegRe3qSnkEKsZBCBKmbZJJ0K3KQfOB9wVx3tQ"
VARIABLES |= {"ANNA_HASH": HASH, "VIC_HASH": HASH, "PROMETHEUS_TOKEN": "not-a-secret-of-twenty-letters"}
# These blocks complete a fragment to a pipeline file; the fragment's own blocks replace those of the same name.
AROUND: dict[str, Any] = {
    "name": "trips",
    "source": {"kafka": {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": ["trips"]}},
    # The decode block has a registry instead of columns, because the columns of a fragment are unknown.
    "decode": {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}},
    "sink": {"iceberg": {"table": "lake.nyc.trips"}},
    "checkpoint": "s3a://lake/checkpoints/trips",
    "catalogs": {"other": {"type": "rest", "uri": "https://catalog.internal/api", "warehouse": "w"}},
}
FUNCTION = "def {name}(rows, **options):\n    return rows\n"


def blocks(language: str) -> list[Any]:
    return [pytest.param(each.page, each.text, id=str(each)) for each in every_block() if each.language == language]


@pytest.mark.parametrize(("page", "block"), blocks("yaml"))
def test_documented_pipeline_files_and_fragments_have_no_mistakes(page: Path, block: str, tmp_path: Path) -> None:
    assert wrong_in_yaml(block, tmp_path / "pipeline.yaml") == []


def test_a_wrong_setting_in_a_fragment_is_found(tmp_path: Path) -> None:
    assert wrong_in_yaml("sink: {iceberg: {tabel: lake.nyc.trips}}\n", tmp_path / "pipeline.yaml")
    assert wrong_in_yaml("    options: {kafka.client.id: me}\n", tmp_path / "pipeline.yaml") == []
    assert wrong_in_yaml("    no_such_thing: {a: b}\n", tmp_path / "pipeline.yaml")


def beside(module: str) -> str | None:
    """Return the Python module that a page shows for the folder of the pipeline file; None if no page does."""
    comment = f"# beside pipeline.yaml: {module}.py"
    return next((text for each in blocks("python") if (text := str(each.values[1])).startswith(comment)), None)


def wrong_in_yaml(block: str, file: Path) -> list[str]:
    """Return the errors of a pipeline file; a fragment is first completed to a whole file.

    The key of an indented fragment determines the block to which the fragment belongs.
    """
    text = block.replace("table: …", "table: lake.nyc.trips")
    shown = yaml.safe_load(text)
    if block.startswith(" "):
        (key,) = shown
        shown = {
            "options": {"source": {"kafka": {**AROUND["source"]["kafka"], **shown}}},
            "properties": {"catalogs": {"lake": {"type": "rest", "uri": "https://c", "warehouse": "w", **shown}}},
        }.get(key, shown)
    whole = {**AROUND, **shown} if "name" not in shown or "checkpoint" not in shown else shown
    if "kafka" in shown.get("source", {}):
        whole["source"] = {"kafka": {**AROUND["source"]["kafka"], **shown["source"]["kafka"]}}
        if "topics_pattern" in shown["source"]["kafka"]:
            del whole["source"]["kafka"]["topics"]
    if "{topic}" in str(whole["sink"].get("iceberg", {}).get("table")):
        whole.pop("checkpoint", None)
    for module, name in re.findall(r"\b(?:path|python): \"(\w+):(\w+)\"", block):
        (file.parent / f"{module}.py").write_text(beside(module) or FUNCTION.format(name=name))
    for key, path in shown.get("tls", {}).items():
        (file.parent / Path(path).name).touch()
        whole["tls"] = {**whole["tls"], key: Path(path).name}
    file.write_text(yaml.safe_dump(whole, sort_keys=False))
    reading = read(file, environment=VARIABLES)
    return [str(each) for each in errors_of(reading.problems)]


def test_the_code_on_the_page_is_that_of_the_tested_package() -> None:
    """The sink's code on the page consists of lines of the tested package; ``…`` stands for omitted text."""
    files = [*ARCHIVE.rglob("*.*"), ROOT / "tests" / "contract" / "test_entry_sinks.py"]
    package = [line.strip() for file in files for line in file.read_text("utf-8").splitlines()]
    shown = [block for block in blocks_of(ROOT / "docs" / "extension-points.md") if block.test == OWN]
    lines = [line.strip() for block in shown for line in block.text.splitlines() if not line.startswith("# ")]
    missing = [line for line in lines if not any(real.startswith(line.rstrip(".…) ").rstrip()) for real in package)]
    assert len(shown) == 4
    assert missing == []
