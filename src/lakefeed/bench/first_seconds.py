"""Measure what a short command costs, from its start to its end: ``lakefeed bench first-seconds``."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakefeed.bench import jobs
from lakefeed.bench.cases import ShortCommand, Workload
from lakefeed.bench.minio import MinioClient, by_api
from lakefeed.bench.processes import FinishedCommand, lakefeed_command, run_command
from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark.class_archive import OFF, VARIABLE, WRITE
from lakefeed.local import Endpoints
from lakefeed.messages.printable import aligned

_WITH, _WITHOUT = "first_seconds", "first_seconds_ledger"
"""The names of the pipelines with and without a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class TimedCommand:
    """One process: its requests are those that the store has traced, Python's before the JVM starts included."""

    seconds: float
    cpu_seconds: float
    calls: dict[str, int]
    complete: bool

    @property
    def requests(self) -> int:
        return sum(self.calls.values())


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """All timed runs of one command."""

    command: ShortCommand
    runs: tuple[TimedCommand, ...]

    @property
    def seconds(self) -> float:
        return statistics.median(run.seconds for run in self.runs)

    @property
    def cpu_seconds(self) -> float:
        return statistics.median(run.cpu_seconds for run in self.runs)

    @property
    def requests(self) -> int:
        return max(run.requests for run in self.runs)

    @property
    def complete(self) -> bool:
        """Check that each run has landed exactly the new records."""
        return all(run.complete for run in self.runs)

    def as_dict(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "s3_requests": self.requests,
            "s3_calls": max(self.runs, key=lambda run: run.requests).calls,
            "complete": self.complete,
            "runs": [
                {
                    "seconds": round(run.seconds, 3),
                    "cpu_seconds": round(run.cpu_seconds, 3),
                    "s3_requests": run.requests,
                }
                for run in self.runs
            ],
        }


@dataclass(frozen=True, kw_only=True)
class FirstSecondsBench:
    """Commands on one running stack whose store is MinIO; no other client may use it, as every request counts.

    Attributes:
        class_archive: whether the first round writes the archive of classes that the others read.
    """

    endpoints: Endpoints
    home: Path
    say: Callable[[str], None]
    class_archive: bool = False

    def measure(self, work: Workload, commands: Sequence[ShortCommand], *, runs: int) -> list[CommandResult]:
        """Run the commands in turns: a first round creates the tables and warms caches, and does not count."""
        minio = MinioClient(self.endpoints, home=self.home)
        Topics(self.endpoints.bootstrap_servers).create(work.topic, partitions=work.partitions)
        files = {name: self._write_pipeline(name, work) for name in (_WITH, _WITHOUT)}
        found: dict[ShortCommand, list[TimedCommand]] = {command: [] for command in commands}
        producer = jobs.job_process(environment=self.endpoints.as_environment(), log=self.home / "produce.log")
        with producer as run:
            for number in range(runs + 1):
                run(jobs.produce_trips, work, self.endpoints)
                for command in commands if number % 2 else reversed(commands):
                    archive = WRITE if self.class_archive and not number and command.startswith("run") else None
                    timed = self._time(command, files, minio, rows=work.rows, archive=archive)
                    self.say(
                        f"{f'run {number} of {runs}' if number else 'warm-up'}, {command}: {timed.seconds:.2f} s, "
                        f"{timed.cpu_seconds:.2f} CPU s, {timed.requests} S3 requests"
                    )
                    if number:
                        found[command].append(timed)
        return [CommandResult(command=command, runs=tuple(found[command])) for command in commands]

    def _write_pipeline(self, name: str, work: Workload) -> Path:
        pipeline = {
            "name": name,
            "source": {"kafka": {"bootstrap_servers": self.endpoints.bootstrap_servers, "topics": [work.topic]}},
            "decode": {"avro": {"registry": self.endpoints.schema_registry_url}},
            "sink": {"iceberg": {"table": f"lake.bench.{name}"}},
            **({"checkpoint": f"s3a://{self.endpoints.bucket}/checkpoints/{name}"} if name == _WITH else {}),
        }
        file = self.home / f"{name}.json"  # YAML includes JSON.
        file.write_text(json.dumps(pipeline, indent=2) + "\n", "utf-8")
        return file

    def _time(
        self, command: ShortCommand, files: dict[str, Path], minio: MinioClient, *, rows: int, archive: str | None
    ) -> TimedCommand:
        arguments = {
            "version": ("--version",),
            "check": ("check", str(files[_WITH])),
            "plan": ("plan", str(files[_WITH])),
            "run": ("run", str(files[_WITH]), "--once", "--output", "json"),
            "run-without-checkpoint": ("run", str(files[_WITHOUT]), "--once", "--output", "json"),
        }[command]
        log, environment = self.home / f"{command}.log", self.endpoints.as_environment()
        # Without one requested, an archive is read only where one is.
        environment |= {VARIABLE: archive or ("" if self.class_archive else OFF)}
        with minio.trace(command) as finish_trace:
            done = run_command(lakefeed_command(*arguments), environment=environment, log=log)
            requests = finish_trace()
        return TimedCommand(
            seconds=done.seconds,
            cpu_seconds=done.cpu_seconds,
            calls={api.api: api.calls for api in by_api(requests)},
            complete=not command.startswith("run") or landed_rows(done) == rows,
        )


def landed_rows(done: FinishedCommand) -> int:
    """Return the rows that a run's summary says it has landed."""
    return int(json.loads(done.output)["rows"])


def table(found: Sequence[CommandResult], work: Workload) -> str:
    """Show the commands in columns."""
    lines: list[tuple[str, ...]] = [("command", "seconds", "CPU seconds", "S3 requests", "rows")]
    for result in found:
        rows = ("all" if result.complete else "DIFFER") if result.command.startswith("run") else "-"
        figures = (f"{result.seconds:.2f}", f"{result.cpu_seconds:.2f}", f"{result.requests}")
        lines.append((result.command, *figures, rows))
    runs = len(found[0].runs) if found else 0
    note = (
        f"Medians of {runs} runs, each a process from its start to its end; {work.rows:,} new records in "
        f"{work.partitions} partition{'s' if work.partitions > 1 else ''}, an existing table. CPU seconds: all "
        "processes of the command. S3 requests: the store's count, the highest of the runs."
    )
    return "\n".join([*aligned(lines, left=1), "", note])
