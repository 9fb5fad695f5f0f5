"""The cost of monitoring from paired runs: the loss, its confidence interval, and the threads' CPU time."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from lakefeed_bench.harness import document
from lakefeed_bench.monitor import CostRun, Loss, Mode, MonitorCost, Pair, report
from lakefeed_bench.processes import CpuTimes, cpu_time


def pair(on: float, off: float, *, requests: int = 50, further: int = 0) -> Pair:
    def run(mode: Mode, rate: float, count: int) -> CostRun:
        cpu = {"tasks": 7.0, "compilers": 3.0, "collector": 0.5, "python": 1.0, "other": 1000 / rate - 8.5}
        return CostRun(mode=mode, rows=1000, batches=3, cpu=cpu, seconds=500 / rate, s3_requests=count)

    return Pair(on=run("on", on, requests + further), off=run("off", off, requests))


def test_a_loss_has_a_confidence_interval() -> None:
    loss = Loss.of([(99.0, 100.0), (101.0, 100.0), (98.0, 100.0), (100.0, 100.0), (99.5, 100.0)])
    assert loss.share == pytest.approx(0.00503, abs=1e-4)
    # Computed by hand: the t value for 4 degrees of freedom (2.776), times the standard error of the logarithms.
    logs = [math.log(value) for value in (0.99, 1.01, 0.98, 1.0, 0.995)]
    mean = sum(logs) / 5
    error = math.sqrt(sum((one - mean) ** 2 for one in logs) / 4 / 5)
    assert loss.low == pytest.approx(1 - math.exp(mean + 2.776 * error), abs=1e-5)
    assert loss.high == pytest.approx(1 - math.exp(mean - 2.776 * error), abs=1e-5)
    assert loss.verdict == "below"


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        ([(90.0, 100.0), (91.0, 100.0), (90.5, 100.0)], "above"),
        ([(90.0, 100.0), (110.0, 100.0), (95.0, 100.0)], "unclear"),
        ([(100.0, 100.0)], "unclear"),
        ([(99.9, 100.0)] * 40, "below"),
    ],
)
def test_the_verdict_depends_on_the_confidence_interval(pairs: list[tuple[float, float]], verdict: str) -> None:
    assert Loss.of(pairs).verdict == verdict


def test_monitoring_holds_if_it_causes_no_proven_loss_and_no_requests() -> None:
    assert MonitorCost(pairs=(pair(100, 100), pair(99, 100), pair(101, 100))).holds
    assert not MonitorCost(pairs=(pair(90, 100), pair(91, 100), pair(90, 100))).holds
    assert not MonitorCost(pairs=(pair(100, 100, further=1), pair(100, 100, further=2))).holds


def test_the_report_and_the_json_document_show_the_loss() -> None:
    one = MonitorCost(pairs=(pair(99, 100),))
    written = json.loads(json.dumps(document(one)))
    assert (written["cpu"]["low"], written["cpu"]["verdict"]) == (None, "unclear")
    assert "one pair gives no confidence interval" in report(one)
    more = MonitorCost(pairs=(pair(99.9, 100), pair(100, 100), pair(100, 100.1)))
    assert "below 2%" in report(more)
    assert "+0 (median)" in report(more)


def test_varying_durations_of_tasks_do_not_hide_the_cpu_time_of_monitoring() -> None:
    def run(mode: Mode, tasks: float, python: float) -> CostRun:
        cpu = {"tasks": tasks, "compilers": 2.0, "collector": 1.0, "other": 3.0, "python": python}
        return CostRun(mode=mode, rows=1000, batches=3, cpu=cpu, seconds=20)

    def cost(added: float) -> MonitorCost:
        noisy = ((10.0, 14.0), (15.0, 9.0), (12.0, 13.0))
        return MonitorCost(pairs=tuple(Pair(on=run("on", on, 1 + added), off=run("off", off, 1)) for on, off in noisy))

    # The tasks take 12.17 s of CPU on average, and all other threads 5 s.
    assert cost(0.17).added.share == pytest.approx(0.17 / 17.25, abs=1e-3)
    assert (cost(0.17).cpu.verdict, cost(0.17).added.verdict, cost(0.17).holds) == ("unclear", "below", True)
    assert (cost(0.8).added.verdict, cost(0.8).holds) == ("above", False)


def test_cpu_time_is_split_by_kind_of_thread() -> None:
    before = CpuTimes(
        jvm=100.0,
        python=5.0,
        threads={"1": ("java", 20.0), "2": ("Executor task l", 40.0), "3": ("C2 CompilerThre", 9.0), "9": ("x", 4.0)},
    )
    now = CpuTimes(
        jvm=131.0,
        python=5.5,
        threads={
            "1": ("java", 22.0),
            "2": ("Executor task l", 50.0),
            "4": ("Executor task l", 6.0),  # Between the two measurements, thread 4 began and thread 9 ended.
            "3": ("C2 CompilerThre", 16.0),
            "5": ("G1 Conc#0", 1.0),
            "6": ("GC Thread#0", 0.5),
        },
    )
    spent = now.since(before)
    assert spent == {"tasks": 16.0, "compilers": 7.0, "collector": 1.5, "python": 0.5, "other": 31 - 24.5}


def test_cpu_time_is_read_from_the_stat_file_of_a_process() -> None:
    name, seconds = cpu_time(Path("/proc/self/stat"))
    assert name.startswith(("python", "pytest"))
    assert 0 < seconds < time.process_time() + 60
    assert cpu_time(Path("/proc/self/none")) == ("", 0.0)
