"""``lakefeed-bench latency`` computes phases of batches and percentiles, and shows them in a report and a chart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lakefeed_bench.latency import PHASES, BatchTime, Latency, Overhead, covered, report, write_chart
from lakefeed_bench.latency_load import Load

NOTED = {
    "jobs": [[1_150, 1_220], [1_230, 1_260]],
    "tasks": [[1_160, 1_200], [1_190, 1_210], [1_240, 1_250]],
    "report": {
        "batchId": 7,
        "timestamp": "1970-01-01T00:00:01.000Z",
        "durationMs": {
            "latestOffset": 10,
            "walCommit": 20,
            "getBatch": 1,
            "queryPlanning": 9,
            "addBatch": 260,
            "commitOffsets": 15,
            "triggerExecution": 320,
        },
    },
}
LATENCY = Latency(
    trigger="1 second",
    target="table",
    guarantee="exactly-once",
    records=1_000,
    missing=0,
    copies=0,
    p50_ms=700.0,
    p99_ms=1_300.0,
    max_ms=1_400.0,
    batches=60,
    files_per_hour=3_600,
    requests_per_hour=21_600,
    requests_per_batch=6.0,
)
LOAD = Load(rate=1_000, seconds=60, warm_up=30, partitions=1)


def test_the_phases_of_a_batch_add_up_to_its_overhead() -> None:
    time = BatchTime.of(NOTED)
    assert (time.batch_id, time.at, time.duration, time.tasks, time.jobs) == (7, 1_000.0, 320.0, 60.0, 2)
    assert tuple(time.phases) == PHASES
    assert time.phases == {
        "ends": 10.0,
        "plan": 10.0,
        "offsets_entry": 20.0,
        "before_jobs": 110.0,
        "jobs": 50.0,
        "after_jobs": 40.0,
        "commits_entry": 15.0,
        "rest": 5.0,
    }
    assert sum(time.phases.values()) == time.overhead == 260.0


def test_a_batch_without_spark_jobs_has_only_time_before_jobs() -> None:
    time = BatchTime.of({**NOTED, "jobs": [], "tasks": []})
    assert (time.phases["before_jobs"], time.phases["jobs"], time.phases["after_jobs"]) == (260.0, 0.0, 0.0)
    assert sum(time.phases.values()) == time.overhead == time.duration


def test_the_time_of_overlapping_tasks_counts_once() -> None:
    assert covered([[5, 9], [0, 4], [1, 3], [8, 10]]) == 9
    assert covered([]) == 0


def test_the_overhead_has_the_median_and_the_99th_percentile_of_the_batches() -> None:
    first = BatchTime.of(NOTED)
    times = [first, replace(first, duration=420.0), replace(first, duration=1_320.0)]
    overhead = Overhead.of(times)
    assert (overhead.batches, overhead.p50_ms, overhead.p99_ms, overhead.tasks_ms) == (3, 360.0, 1_260.0, 60.0)


@pytest.mark.parametrize(
    ("latency", "holds"),
    [
        pytest.param(LATENCY, True, id="complete"),
        pytest.param(replace(LATENCY, missing=1), False, id="missing record"),
        pytest.param(replace(LATENCY, copies=1), False, id="copy, exactly-once"),
        pytest.param(
            replace(LATENCY, copies=1, guarantee="at-least-once", target="topic"), True, id="copy, at-least-once"
        ),
    ],
)
def test_latency_holds_only_if_no_record_is_missing_or_repeated_against_its_promise(
    latency: Latency, holds: bool
) -> None:
    assert latency.holds is holds


def test_the_report_shows_costs_and_phases() -> None:
    text = report([replace(LATENCY, overhead=Overhead.of([BatchTime.of(NOTED)]))], LOAD)
    for part in ("700", "1,300", "3,600", "21,600", "offsets entry", "exactly-once", "every 10 ms"):
        assert part in text


def test_the_chart_omits_real_time_triggers(tmp_path: Path) -> None:
    other = replace(LATENCY, trigger="100 milliseconds", p50_ms=310.0)
    file = tmp_path / "latency.svg"
    write_chart(file, [LATENCY, other, replace(LATENCY, trigger="real-time", p50_ms=3.3)])
    drawn = "".join(ElementTree.parse(file).getroot().itertext())
    assert {"100 ms", "1 s", "p50", "S3 requests"} <= {text.strip() for text in drawn.splitlines()}
    assert "real-time" not in drawn
