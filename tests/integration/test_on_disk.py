"""With tables, dead letters and checkpoint in a local folder, all operations work without an object store."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from lakefeed.config.connections import CATALOG_FILE
from lakefeed.errors import AccessDenied, ConfigError, ResourceMissing
from lakefeed.pipeline import Pipeline
from lakefeed.sinks.dead_letters.store import DeadLetterFilter
from lakefeed_local.stack import Endpoints
from lakefeed_observe.runs.store import traces_of
from lakefeed_repair.replay import replay
from lakefeed_repair.rewind import plan_rewind, rewind
from tests.support.cli import lakefeed
from tests.support.feed import Feed, ids, trips


@pytest.fixture
def disk(stack: Endpoints, tmp_path: Path) -> Feed:
    return Feed(stack, tmp_path, disk=tmp_path / "my lake")


def run(pipeline: Pipeline) -> int:
    return pipeline.run(spark=pipeline.session(), once=True).rows


@pytest.mark.quick
@pytest.mark.parametrize("checkpoint", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_feed_in_a_local_folder_is_verified_rewound_and_read(
    lake: SparkSession, disk: Feed, checkpoint: bool
) -> None:
    blocks: dict[str, Any] = {
        "decode": {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["topic", "partition", "offset"]},
        "dead_letters": {"table": f"{disk.catalog}.{disk.name}.letters"},
    }
    if not checkpoint:
        blocks["checkpoint"] = ""
    disk.create_topic()
    disk.send(disk.avro(trips(0, 60)))
    pipeline = disk.pipeline(**blocks)
    assert run(pipeline) == 60
    disk.send([*disk.avro(trips(60, 80)), b"\x01"])
    [planned] = pipeline.plan(spark=lake).tables
    assert planned.estimates is not None
    assert planned.estimates.requests.all == 0
    assert planned.estimates.records.all == 21
    assert run(pipeline) == 20
    assert ids(disk) == list(range(80))

    proof = pipeline.verify(deep=True)
    assert not proof.faults
    assert (proof.rows, proof.dead_letters) == (80, 1)
    assert not any(part.lag for part in pipeline.status().partitions)
    assert replay(pipeline, DeadLetterFilter(feed=disk.name), spark=lake).still_dead == 1

    # Other tools read the tables without lakefeed.
    assert disk.disk is not None
    folder = disk.disk / "warehouse"
    catalog = load_catalog(
        disk.catalog, type="sql", uri=f"sqlite:///{folder}/{CATALOG_FILE}", warehouse=f"file://{folder}"
    )
    table = catalog.load_table(f"{disk.name}.rows")
    counted = table.scan().to_duckdb("trips").execute("SELECT count(*), max(id) FROM trips").fetchone()
    assert counted == (80, 79)
    assert not list(disk.disk.rglob("*.crc"))

    agreed = plan_rewind(pipeline, "earliest", delete_rows=True)
    rewind(pipeline, agreed, spark=lake)
    assert ids(disk) == []
    assert run(pipeline) == 80
    assert ids(disk) == list(range(80))
    assert not pipeline.verify(deep=True).faults


def test_upkeep_compacts_tables_in_a_folder_and_removes_orphans(lake: SparkSession, disk: Feed) -> None:
    disk.create_topic(partitions=1)
    pipeline = disk.pipeline()
    for start in range(0, 40, 10):
        disk.send(disk.avro(trips(start, start + 10)))
        run(pipeline)
    assert disk.disk is not None
    data = disk.disk / "warehouse" / disk.name / "rows" / "data"
    orphan = data / "00000-0-5c1f0f6e-0000-4000-8000-000000000000-0-00001.parquet"
    orphan.write_bytes(b"left by a killed task")
    four_days_ago = time.time() - 4 * 86_400
    os.utime(orphan, (four_days_ago, four_days_ago))
    before = len(list(data.glob("*.parquet")))
    file = disk.write_file()
    lakefeed(
        *("tables", "maintain", file, "--only", "compact,orphans", "--output", "json"), environment=disk.environment
    )
    assert not orphan.exists()
    assert len(list(data.glob("*.parquet"))) <= before
    assert ids(disk) == list(range(40))
    disk.send(disk.avro(trips(40, 50)))
    assert run(pipeline) == 10
    assert not pipeline.verify().faults


def test_parquet_files_and_traces_of_runs_are_written_to_the_folder(lake: SparkSession, disk: Feed) -> None:
    disk.create_topic()
    disk.send(disk.avro(trips(0, 30)))
    blocks: dict[str, Any] = {"sink": {"parquet": {"path": disk.place("files")}}, "runs": {"keep": "checkpoint"}}
    pipeline = disk.pipeline(**blocks)
    assert run(pipeline) == 30
    disk.send(disk.avro(trips(30, 50)))
    assert run(pipeline) == 20
    rows = lake.read.parquet(disk.place("files")).collect()
    assert sorted(row.id for row in rows) == list(range(50))
    assert disk.disk is not None
    beside = list((disk.disk / "checkpoints" / f"{disk.name}.runs").glob("*.json"))
    assert {path.stem for path in beside} == {
        trace.run for trace in traces_of(pipeline.config, connections=pipeline.connections)
    }
    assert len(beside) == 2


def test_check_sends_no_request_to_a_store_and_names_the_fault_of_a_folder(disk: Feed) -> None:
    disk.create_topic()
    disk.send(disk.avro(trips(0, 1)))
    file = disk.write_file()
    good = lakefeed("check", file, "--connect", environment=disk.environment)
    assert "S3" not in good.stdout + good.stderr
    assert disk.disk is not None
    assert not disk.disk.exists(), "a check makes nothing"
    with pytest.raises(ResourceMissing, match="has no table yet"):
        disk.rows()
    disk.disk.write_text("in the way")
    bad = lakefeed("check", file, "--connect", "--output", "json", environment=disk.environment, status=2)
    found = [problem for problem in json.loads(bad.stdout) if problem["severity"] == "error"]
    assert {problem["key"] for problem in found} == {"checkpoint", f"catalogs.{disk.catalog}.warehouse"}
    assert all("this must be a folder" in problem["what"] for problem in found)
    with pytest.raises((ConfigError, AccessDenied)):
        disk.pipeline().session()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="its file system is Linux's")
def test_a_folder_in_which_no_file_can_be_created_is_refused(disk: Feed) -> None:
    disk.create_topic()
    disk.send(disk.avro(trips(0, 1)))
    file = disk.write_file(checkpoint="/proc/checkpoint")
    bad = lakefeed("check", file, "--connect", "--output", "json", environment=disk.environment, status=2)
    found = {problem["key"]: problem["what"] for problem in json.loads(bad.stdout)}
    assert "the folder cannot be written to: " in found["checkpoint"]


def test_a_local_folder_is_refused_on_a_cluster(disk: Feed) -> None:
    disk.create_topic()
    disk.send(disk.avro(trips(0, 1)))
    done = lakefeed(
        "run", disk.write_file(), "--once", "--master", "spark://127.0.0.1:7077", environment=disk.environment, status=2
    )
    assert (
        "is a folder of this machine, and executors of spark://127.0.0.1:7077 would write to their own" in done.stderr
    )


def test_a_text_too_long_for_the_name_of_a_partition_folder_is_a_dead_letter(lake: SparkSession, disk: Feed) -> None:
    """The name of the partition's folder contains the text; file systems allow names of at most 255 bytes."""
    disk.create_topic(partitions=1)
    zones = ["a", "x" * 240, "x" * 260, "é" * 130, "${foo}/../..", "b"]
    disk.send(disk.avro([{"id": at, "zone": zone} for at, zone in enumerate(zones)]), partition=0)
    pipeline = disk.pipeline(
        sink={"iceberg": {"table": disk.table, "partition_by": ["zone"]}}, dead_letters={"table": f"{disk.table}_dead"}
    )
    summary = pipeline.run(spark=pipeline.session(), once=True)
    assert (summary.records, summary.dead_letters) == (6, 2)
    assert ids(disk) == [0, 1, 4, 5]
    assert sorted(letter["offset"] for letter in disk.rows(f"{disk.table}_dead")) == [2, 3]
    assert not pipeline.verify().faults
