"""Measure elapsed time, CPU time and S3 requests of short commands: ``lakefeed-bench first-seconds``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from lakefeed.clients.spark.class_archive import OFF, VARIABLE, WRITE
from lakefeed_bench import jobs
from lakefeed_bench.harness import Bench, Outcome, in_turns, measurement, median_of, number, only, table
from lakefeed_bench.jobs import Work
from lakefeed_bench.minio import Minio, by_api
from lakefeed_bench.processes import run_command

_WITH, _WITHOUT = "first_seconds", "first_seconds_ledger"
"""The pipeline with a checkpoint, and the pipeline without one."""
_RUN = ("--once", "--output", "json")
COMMANDS = {
    "version": ("--version",),
    "check": ("check", _WITH),
    "plan": ("plan", _WITH),
    "run-without-checkpoint": ("run", _WITHOUT, *_RUN),
    "run": ("run", _WITH, *_RUN),
}
"""The arguments of the timed commands; a pipeline's name in them stands for the path of its file."""


@dataclass(frozen=True, kw_only=True)
class TimedCommand:
    """One run of a command. The requests are the store's, so they include requests from Python."""

    seconds: float
    cpu_seconds: float
    s3_calls: dict[str, int]
    complete: bool

    @property
    def s3_requests(self) -> int:
        return sum(self.s3_calls.values())

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s, {self.cpu_seconds:.2f} CPU s, {self.s3_requests} S3 requests"


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """All timed runs of one command: the medians of the times, and the requests of the run with the most requests."""

    command: str
    seconds: float
    cpu_seconds: float
    s3_requests: int
    s3_calls: dict[str, int]
    complete: bool
    runs: Sequence[TimedCommand]

    @classmethod
    def of(cls, command: str, runs: Sequence[TimedCommand]) -> CommandResult:
        typical, most = median_of(runs), max(runs, key=lambda run: run.s3_requests)
        return cls(
            command=command,
            seconds=typical.seconds,
            cpu_seconds=typical.cpu_seconds,
            s3_requests=most.s3_requests,
            s3_calls=most.s3_calls,
            complete=all(run.complete for run in runs),
            runs=runs,
        )


@measurement(
    "first-seconds",
    number("--records", 1_000, "Records to produce before each round."),
    number("--runs", 3, "Timed runs of each command."),
    only("--command", list(COMMANDS), into="commands"),
    click.option("--class-archive", is_flag=True, help="Use a JVM class archive; the warm-up round writes it."),
)
def first_seconds(bench: Bench, records: int, runs: int, commands: Sequence[str], class_archive: bool) -> Outcome:
    """Time --version, check, plan, and run --once.

    Every run is a new process; the commands take turns, with warm caches and an existing table. Measures seconds, CPU
    seconds of all processes, and S3 requests in the store's trace. Status 1 if a run did not land exactly the new
    records. The first use builds MinIO from source, which needs Go.
    """
    work, minio, chosen = Work(name="first-seconds", rows=records, partitions=1), Minio(bench), commands or [*COMMANDS]
    bench.topics.create(work.topic, partitions=work.partitions)
    files = {name: _write_pipeline(bench, name, work) for name in (_WITH, _WITHOUT)}
    with bench.processes("produce") as processes:
        filled = set[int]()

        def run(command: str, at: int) -> TimedCommand:
            if at not in filled:
                filled.add(at)
                processes["produce"](jobs.produce_trips, work, bench.endpoints)
            archive = "" if class_archive else OFF  # An empty value means that the JVM reads an existing archive.
            if class_archive and at < 1 and command.startswith("run"):
                archive = WRITE
            environment = {**bench.endpoints.as_environment(), VARIABLE: archive}
            arguments = [str(files.get(argument, argument)) for argument in COMMANDS[command]]
            line = [sys.executable, "-m", "lakefeed.cli", *arguments]
            with minio.trace(command) as finish_trace:
                done = run_command(line, environment=environment, log=bench.logs / f"{command}.log")
                requests = finish_trace()
            return TimedCommand(
                seconds=done.seconds,
                cpu_seconds=done.cpu_seconds,
                s3_calls={api.api: api.calls for api in by_api(requests)},
                complete=not command.startswith("run") or json.loads(done.output)["rows"] == records,
            )

        timed = in_turns(chosen, run, rounds=runs)
    results = [CommandResult.of(command, timed[command]) for command in chosen]
    note = (
        f"Medians of {runs} runs with {records:,} new records and an existing table. CPU seconds: all processes of the "
        "command. S3 requests: the store's count for the run with the most."
    )
    text = table(results, "command seconds cpu_seconds s3_requests complete")
    return Outcome(results=results, text=f"{text}\n\n{note}", holds=all(result.complete for result in results))


def _write_pipeline(bench: Bench, name: str, work: Work) -> Path:
    checkpoint = f"s3a://{bench.endpoints.bucket}/checkpoints/{name}" if name == _WITH else None
    sink = {"iceberg": {"table": f"lake.bench.{name}"}}
    document = jobs.pipeline_document(name, [work.topic], bench.endpoints, sink=sink, checkpoint=checkpoint)
    file = bench.logs / f"{name}.json"  # YAML can be written as JSON.
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return file
