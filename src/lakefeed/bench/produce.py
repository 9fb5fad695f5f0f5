"""Measure how fast rows become records of a topic, beside the job that the seeds publish: ``lakefeed bench produce``.

Each producer has a process of its own, whose JVM stays warm; runs take turns, each into a topic of its own. A ratio is
the median over the rounds of what both did in the same round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakefeed.bench import jobs
from lakefeed.bench.produce_jobs import Input, Producer, Took, Trips, run_producer, topic_totals, write_files
from lakefeed.clients.kafka.topics import Topics
from lakefeed.local import Endpoints
from lakefeed.messages.printable import aligned
from lakefeed.operations.produce.taxi import Totals

PRODUCERS: tuple[Producer, ...] = ("seed", "lakefeed", "read")


@dataclass(frozen=True, kw_only=True)
class ProducerResult:
    """All timed runs of one producer with one input; ``rows_equal`` says whether each topic has exactly the rows."""

    producer: Producer
    trips: Trips
    runs: tuple[Took, ...]
    rows_equal: bool

    @property
    def rows_per_second(self) -> float:
        return self.trips.rows / statistics.median(run.seconds for run in self.runs)

    @property
    def rows_per_cpu_second(self) -> float:
        return self.trips.rows / statistics.median(run.cpu_seconds for run in self.runs)

    def ratio_to(self, other: ProducerResult, cost: Callable[[Took], float]) -> float:
        """Return the median over the rounds of how much more the other one has spent."""
        return statistics.median(cost(theirs) / cost(mine) for mine, theirs in zip(self.runs, other.runs, strict=True))


@dataclass(frozen=True, kw_only=True)
class ProduceBench:
    """The bench on one running stack."""

    endpoints: Endpoints
    home: Path
    say: Callable[[str], None]
    partitions: int

    def measure(self, rows: int, inputs: Sequence[Input], *, runs: int) -> list[ProducerResult]:
        """Produce the same rows in turns; a first round warms up, and does not count."""
        found: list[ProducerResult] = []
        with ExitStack() as stack:
            processes = {
                producer: stack.enter_context(
                    jobs.job_process(environment=self.endpoints.as_environment(), log=self.home / f"{producer}.log")
                )
                for producer in PRODUCERS
            }
            for input_ in inputs:
                trips = Trips(input=input_, rows=rows, folder=str(self.home.absolute()))
                expected: Totals = processes["read"](write_files, trips)
                found += self._measure(trips, processes, expected, runs=runs)
        return found

    def _measure(
        self, trips: Trips, processes: dict[Producer, Callable[..., Any]], expected: Totals, *, runs: int
    ) -> list[ProducerResult]:
        took: dict[Producer, list[Took]] = {producer: [] for producer in PRODUCERS}
        equal = dict.fromkeys(PRODUCERS, True)
        topics = Topics(self.endpoints.bootstrap_servers)
        for number in range(runs + 1):
            for producer in PRODUCERS if number % 2 else reversed(PRODUCERS):
                topic = f"produce-{trips.input}-{producer}-{number}"
                if producer != "read":
                    topics.create(topic, partitions=self.partitions)
                run: Took = processes[producer](run_producer, producer, trips, topic, self.endpoints)
                self.say(
                    f"{trips.input}, {f'run {number} of {runs}' if number else 'warm-up'}, {producer}: "
                    f"{run.seconds:.1f} s, {run.cpu_seconds:.1f} CPU s"
                )
                if producer != "read":
                    # By a process that is not measured.
                    equal[producer] &= processes["read"](topic_totals, producer, topic, self.endpoints) == expected
                    topics.delete(topic)
                if number:
                    took[producer].append(run)
        return [
            ProducerResult(producer=producer, trips=trips, runs=tuple(took[producer]), rows_equal=equal[producer])
            for producer in PRODUCERS
        ]


def as_dicts(found: Sequence[ProducerResult]) -> list[dict[str, Any]]:
    """Return the results for ``--output json``."""
    return [
        {
            "input": result.trips.input,
            "producer": result.producer,
            "rows": result.trips.rows,
            "rows_per_second": round(result.rows_per_second),
            "rows_per_cpu_second": round(result.rows_per_cpu_second),
            "ratio_to_seed": round(result.ratio_to(_seed_of(result, found), _cpu_seconds), 2),
            "ratio_to_seed_by_clock": round(result.ratio_to(_seed_of(result, found), _seconds), 2),
            "rows_equal": result.rows_equal,
            "runs": [
                {"seconds": round(run.seconds, 3), "cpu_seconds": round(run.cpu_seconds, 3)} for run in result.runs
            ],
        }
        for result in found
    ]


def table(found: Sequence[ProducerResult]) -> str:
    """Show the results in columns."""
    lines: list[tuple[str, ...]] = [
        ("input", "producer", "rows", "rows/s", "rows/CPU s", "by CPU", "by clock", "equal")
    ]
    for result in found:
        seed = _seed_of(result, found)
        lines.append(
            (
                result.trips.input,
                result.producer,
                f"{result.trips.rows:,}",
                f"{result.rows_per_second:,.0f}",
                f"{result.rows_per_cpu_second:,.0f}",
                f"{result.ratio_to(seed, _cpu_seconds):.2f}",
                f"{result.ratio_to(seed, _seconds):.2f}",
                "-" if result.producer == "read" else "all" if result.rows_equal else "DIFFER",
            )
        )
    note = (
        "By CPU, by clock: rows for each CPU second of JVM and Python, and each second, as a multiple of the seeds' "
        "producer in the same round; medians. read: the same rows read or generated, and dropped."
    )
    return "\n".join([*aligned(lines, left=2), "", note])


def _seed_of(result: ProducerResult, found: Sequence[ProducerResult]) -> ProducerResult:
    return next(each for each in found if each.producer == "seed" and each.trips == result.trips)


def _cpu_seconds(run: Took) -> float:
    return run.cpu_seconds


def _seconds(run: Took) -> float:
    return run.seconds
