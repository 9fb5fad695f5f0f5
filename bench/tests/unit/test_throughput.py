"""``lakefeed-bench throughput`` compares pipelines by ratios, and shows them in a report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest

from lakefeed.config.blocks import FastPath
from lakefeed_bench.harness import document
from lakefeed_bench.throughput import (
    FAST_PATHS,
    USUAL_WAYS,
    WAYS,
    WITHOUT_CHECKPOINT,
    Landed,
    Throughput,
    WayResult,
    case_of,
    compared,
    report,
)
from lakefeed_bench.throughput_jobs import Limits

FIGURES = Landed(
    batches=3,
    rows=3000,
    seconds=3.0,
    cpu_seconds=4.0,
    steady_rows=2000,
    steady_seconds=1.0,
    steady_cpu_seconds=2.0,
    batch_overhead_seconds=0.1,
    peak_rss_mb=900,
    files=30,
    stored_bytes=60_000,
    s3_requests=40,
    ends={0: 3000},
    totals=None,
    stages=None,
    server_cpu_seconds={},
    rows_equal=True,
)
LIMITS = Limits(fetch=0.2, decode=0.1, encode=0.2, read_rows_per_second=9.0, decoded_rows_per_second=8.0)


def result(way: str, *rates: float, equal: bool = True) -> WayResult:
    """Return the measurements of a pipeline: one run for each of these rates, in rows per CPU second."""
    runs = [replace(FIGURES, steady_cpu_seconds=2000 / rate, rows_equal=equal) for rate in rates]
    return WayResult(way=way, runs=runs, rows_equal=equal)


def throughput(*ways: WayResult) -> Throughput:
    return Throughput(
        records=3000,
        record_bytes=150.0,
        partitions=1,
        batches=3,
        runs=1,
        cores=2,
        ways=compared(ways, LIMITS),
        limits=LIMITS,
    )


def test_a_ratio_is_the_median_of_the_ratios_of_all_rounds() -> None:
    # In the second round, the machine is half as fast for both pipelines.
    mine, theirs = result("lakefeed-iceberg", 200.0, 100.0, 240.0), result("spark-iceberg", 100.0, 50.0, 110.0)
    ours, spark = compared([mine, theirs], None)
    assert ours.ratio_to_spark == pytest.approx(2.0)
    assert (ours.ratio_to_seed, ours.ratio_to_limit, spark.ratio_to_spark) == (None, None, 1.0)


def test_the_json_has_ratios_and_rates() -> None:
    bench = throughput(result("lakefeed-iceberg", 400_000.0), result("spark-iceberg", 200_000.0))
    shown = json.loads(json.dumps(document(bench)))
    lakefeed, spark = shown["ways"]
    assert (lakefeed["ratio_to_spark"], lakefeed["ratio_to_seed"], lakefeed["ratio_to_limit"]) == (2.0, None, 0.2)
    assert lakefeed["rows_per_second"] == 2000
    assert lakefeed["rows_per_cpu_second"] == 400_000
    assert lakefeed["peak_rss_mb"] == 900
    assert lakefeed["rows_equal"] is True
    assert spark["ratio_to_spark"] == 1.0
    assert shown["limits"]["rows_per_cpu_second"] == 2_000_000


def test_the_report_marks_a_pipeline_whose_rows_differ_from_the_topic() -> None:
    bench = throughput(result("lakefeed-iceberg", 400_000.0, equal=False), result("seed", 100_000.0))
    assert not bench.holds
    lines = report(bench).splitlines()
    assert [line.split()[-1] for line in lines[1:3]] == ["NO", "yes"]
    assert "4.00" in lines[1]


def test_pipelines_for_fast_path_differ_only_in_the_value_of_fast_path() -> None:
    values = [*get_args(FastPath)]
    assert [*FAST_PATHS.values()] == 2 * values
    assert set(WAYS) == {*USUAL_WAYS, *FAST_PATHS, WITHOUT_CHECKPOINT}
    runs = [case_of(way, 0, bucket="b") for way in ("lakefeed-iceberg", *FAST_PATHS)]
    assert [run.sink for run in runs] == [*5 * ["iceberg"], *4 * ["parquet"]]
    assert {run.manager for run in runs} == {"lakefeed"}
    assert [run.fast_path for run in runs] == [None, *2 * values]
    bench = throughput(
        result("lakefeed-iceberg-off", 100.0, 50.0),
        result("lakefeed-iceberg-auto", 300.0, 150.0),
        result("lakefeed-parquet-off", 50.0, 25.0),
        result("lakefeed-parquet-auto", 100.0, 50.0),
    )
    assert [way.ratio_to_off for way in bench.ways] == [1.0, 3.0, 1.0, 2.0]


def test_only_one_pipeline_has_no_checkpoint() -> None:
    assert [way for way in WAYS if not case_of(way, 0, bucket="b").has_checkpoint] == [WITHOUT_CHECKPOINT]


def test_each_run_has_its_own_table_path_and_checkpoint() -> None:
    runs = [case_of(way, number, bucket="b") for way in ("seed", "lakefeed-parquet") for number in (0, 1)]
    for place in ("table", "path", "checkpoint"):
        assert len({getattr(run, place) for run in runs}) == 4
    assert {run.manager for run in runs} == {"spark", "lakefeed"}
    assert {run.sink for run in runs} == {"parquet"}
