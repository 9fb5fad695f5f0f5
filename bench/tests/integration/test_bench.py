"""The commands of the bench with few records, on real servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.cli import lakefeed

COMMAND = (sys.executable, "-m", "lakefeed_bench.cli")
PIPELINE = """\
name: trips
source:
  kafka: {bootstrap_servers: broker:9092, topics: [trips]}
decode:
  avro: {registry: http://registry:8081}
sink:
  iceberg: {table: lake.taxi.trips}
checkpoint: s3a://lake/checkpoints/trips
"""


def bench(
    *arguments: str, timeout: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(
        [*COMMAND, *arguments], env=variables, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_s3_requests_counts_the_same_requests_in_the_trace_and_in_the_jvm(tmp_path: Path) -> None:
    done = bench(
        *("s3-requests", "--home", str(tmp_path / "bench"), "--rows", "6000", "--batches", "3"),
        *("--manager", "lakefeed", "--versioned", "--output", "json"),
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parquet, iceberg = json.loads(done.stdout)
    for case in (parquet, iceberg):
        assert case["meter_agrees"]  # MinIO's trace and the JVM's meter have counted the same requests.
        assert case["complete"]
        assert case["rows"] == 6000
        assert case["phases"]["batches"] == 3
        assert case["kept"]["files"] == 30
        assert case["kept"]["delete_markers"] == 0
        assert sum(case["calls"].values()) == case["total"]
        # At least two checkpoint entries (offsets, commits) for each of 3 batches, and 30 data files.
        assert case["calls"]["s3.PutObject"] >= 3 * 2 + 30


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_latency_measures_a_table_with_two_triggers(tmp_path: Path) -> None:
    chart = tmp_path / "latency.svg"
    done = bench(
        *("latency", "--home", str(tmp_path / "bench"), "--store", "s3proxy", "--chart", str(chart)),
        *("--rate", "100", "--seconds", "10", "--warm-up", "5", "--output", "json"),
        *("--trigger", "100 milliseconds", "--trigger", "2 seconds"),
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    quick, slow = json.loads(done.stdout)
    assert (quick["trigger"], slow["trigger"]) == ("100 milliseconds", "2 seconds")
    for each in (quick, slow):
        assert (each["missing"], each["copies"], each["guarantee"]) == (0, 0, "exactly-once")
        assert each["records"] >= 900
        assert 0 < each["p50_ms"] <= each["p99_ms"] <= each["max_ms"]
        assert each["files_per_hour"] > 0
        assert each["overhead"]["jobs"] == 1
        # A batch writes data, a manifest, a manifest list, metadata, and two entries of the checkpoint.
        assert each["requests_per_batch"] >= 6
        assert each["overhead"]["p50_ms"] > 0
    # The shorter trigger makes records wait less for their batch.
    assert quick["p50_ms"] < slow["p50_ms"]
    assert slow["files_per_hour"] == pytest.approx(1800, rel=0.2)
    assert chart.read_text().startswith("<svg")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_deploy_size_reads_the_throughput_that_the_bench_has_measured(tmp_path: Path) -> None:
    done = bench(
        *("throughput", "--home", str(tmp_path / "bench"), "--store", "s3proxy", "--rows", "200000"),
        *("--batches", "3", "--partitions", "3", "--runs", "1", "--output", "json"),
        timeout=800,
        environment={"LAKEFEED_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["records"] == 200_000
    assert found["limits"]["rows_per_cpu_second"] > 0
    ways = {way["way"]: way for way in found["ways"]}
    assert set(ways) == {"lakefeed-iceberg", "lakefeed-parquet", "spark-iceberg", "seed"}
    for way in ways.values():
        assert way["rows_equal"]
        assert way["peak_rss_mb"] > 300
        assert way["ratio_to_limit"] > 0
        assert sum(way["stages"].values()) == pytest.approx(1, abs=0.01)
        assert way["stages"]["encode"] > 0
        [run] = way["runs"]
        assert (run["batches"], run["rows"], run["files"]) == (3, 200_000, 9)
        assert run["server_cpu_seconds"]["kafka"] > 0
    assert ways["spark-iceberg"]["ratio_to_spark"] == 1.0
    assert ways["seed"]["ratio_to_seed"] == 1.0
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    sized = lakefeed(
        *("deploy", "size", str(tmp_path / "pipeline.yaml"), "--target-rate", "1M/s", "--output", "json"),
        environment={"LAKEFEED_HOME": str(tmp_path)},
    )
    assert sized.returncode == 0, sized.stdout + sized.stderr
    assert json.loads(sized.stdout)["figures"]["cores"]["value"] >= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_upserts_compares_all_ways_and_finds_equal_rows(tmp_path: Path) -> None:
    ways = ("merge", "lakefeed", "append", "debezium")
    done = bench(
        *("upserts", "--home", str(tmp_path / "bench"), "--rows", "600", "--changes", "20", "--batch", "10"),
        *("--columns", "2", "--rounds", "1", "--workload", "updates", "--workload", "deletes", "--output", "json"),
        *(part for way in ways for part in ("--way", way)),
        timeout=1700,
    )
    assert done.stdout, done.stderr
    results = json.loads(done.stdout)
    assert done.returncode in (0, 1), results
    found = {(each["workload"], each["way"]): each for each in results}
    assert {load: {way for each, way in found if each == load} for load, _ in found} == {
        "fill": set(ways),
        "updates": {"merge", "lakefeed", "debezium"},
        "deletes": {"merge", "lakefeed", "debezium"},
    }
    for (load, way), each in found.items():
        assert each["rows_equal"], (load, way)
        # Debezium sends a tombstone after each delete, so its deletes need twice as many batches.
        assert each["batches"] == (1 if load == "fill" else 4 if (load, way) == ("deletes", "debezium") else 2)
        assert each["s3_requests"] > each["batch_requests"] > 3
        assert each["batch_files"] >= 1
        assert each["bytes_written"] > 0
        assert each["peak_rss_mb"] > 300
        assert min(each[name] for name in ("pyiceberg_seconds", "duckdb_seconds", "cpu_seconds")) > 0
        assert (each["time_ratio"] == 1) == (way == "lakefeed")
        assert way != "lakefeed" or each["fill_seconds"] > 0
    assert done.returncode == (0 if all(found[load, "merge"]["time_ratio"] >= 1 for load, _ in found) else 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_scale_measures_every_dimension_and_loses_no_record(tmp_path: Path) -> None:
    bounds = {"rows": 3000, "partitions": 3, "columns": 9, "bytes": 300, "files": 30, "batches": 50, "topics": 2}
    done = bench(
        *("scale", "--home", str(tmp_path / "bench"), "--store", "s3proxy", "--rounds", "1"),
        *(part for name, most in bounds.items() for part in ("--dimension", f"{name}={most}")),
        *("--charts", str(tmp_path / "charts"), "--output", "json"),
        timeout=1700,
    )
    assert done.stdout, done.stderr
    found = {dimension["dimension"]["name"]: dimension for dimension in json.loads(done.stdout)}
    assert set(found) == set(bounds)
    for name, dimension in found.items():
        assert dimension["is_complete"], name
        assert max(point["size"] for point in dimension["points"]) == bounds[name]
        for point in dimension["points"]:
            assert point["cpu_seconds"] > 0
            assert point["requests"] >= 5
            assert point["heap_mb"] > 30
        assert (tmp_path / "charts" / f"scale-{name}.svg").read_text().startswith("<svg")
    assert done.returncode == (0 if all(dimension["holds"] for dimension in found.values()) else 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_latency_measures_a_topic_with_batches_and_in_real_time(tmp_path: Path) -> None:
    done = bench(
        *("latency", "--sink", "topic", "--store", "s3proxy", "--home", str(tmp_path / "bench")),
        *("--seconds", "10", "--warm-up", "5"),
        *("--rate", "50", "--trigger", "1 second", "--trigger", "real-time, 10 seconds", "--output", "json"),
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    batches, real_time = json.loads(done.stdout)
    assert (batches["trigger"], real_time["trigger"]) == ("1 second", "real-time, 10 seconds")
    for each in (batches, real_time):
        assert each["missing"] == 0
        assert each["records"] >= 250
        assert 0 < each["p50_ms"] <= each["p99_ms"] <= each["max_ms"]
    assert real_time["p50_ms"] < batches["p50_ms"]
