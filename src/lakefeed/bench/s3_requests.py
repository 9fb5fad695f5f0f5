"""Count the requests of a stream to S3 by the store's own trace, and show them: ``lakefeed bench s3-requests``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lakefeed.bench import jobs
from lakefeed.bench.cases import RequestCase, Workload
from lakefeed.bench.minio import ApiCalls, Kept, MinioClient, Phases, as_traced, by_api, phases
from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.connections import Connections
from lakefeed.local import Endpoints

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_HEADINGS = (
    *("manager", "sink", "bucket", "batches", "files", "start-up", "first", "per batch", "total"),
    *("objects", "versions", "markers", "rows", "meter"),
)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One case: the store's count by API and the JVM's own, rows in topic and table, seconds from the JVM's start."""

    case: RequestCase
    apis: tuple[ApiCalls, ...]
    metered: dict[str, int]
    phases: Phases
    kept: Kept
    expected: int
    rows: int
    seconds: float

    @property
    def total(self) -> int:
        return sum(api.calls for api in self.apis)

    @property
    def calls(self) -> dict[str, int]:
        return {api.api: api.calls for api in self.apis}

    @property
    def received(self) -> int:
        return sum(api.received for api in self.apis)

    @property
    def sent(self) -> int:
        return sum(api.sent for api in self.apis)

    @property
    def meter_agrees(self) -> bool:
        """Check that the JVM counted exactly what the store did, API by API."""
        return self.metered == self.calls

    @property
    def complete(self) -> bool:
        return self.rows == self.expected

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self.case),
            "batches": self.phases.batches,
            "files": self.kept.files,
            "calls": self.calls,
            "errors": sum(api.errors for api in self.apis),
            "received_bytes": self.received,
            "sent_bytes": self.sent,
            "total": self.total,
            "startup": self.phases.startup,
            "first_batch": self.phases.first_batch,
            "per_batch": round(self.phases.per_batch, 2),
            "objects": self.kept.objects,
            "versions": self.kept.versions,
            "delete_markers": self.kept.delete_markers,
            "rows": self.rows,
            "complete": self.complete,
            "meter_agrees": self.meter_agrees,
            "metered": self.metered,
            "seconds": round(self.seconds, 1),
        }


class Bench:
    """Cases on one running stack whose store is MinIO; no other client may use it, as every request counts."""

    def __init__(self, endpoints: Endpoints, *, home: Path, say: Callable[[str], None]) -> None:
        self._endpoints = endpoints
        self._home = home
        self._say = say
        self._minio = MinioClient(endpoints, home=home)

    def fill_topic(self, work: Workload) -> int:
        """Make and fill the workload's topic; return the number of its records."""
        self._say(f"producing {work.rows:,} trips into {work.partitions} partitions")
        Topics(self._endpoints.bootstrap_servers).create(work.topic, partitions=work.partitions)
        environment, log = self._endpoints.as_environment(), self._home / "produce.log"
        with jobs.job_process(environment=environment, log=log) as run:
            records: int = run(jobs.produce_trips, work, self._endpoints)
        return records

    def measure(self, case: RequestCase, work: Workload, *, expected: int) -> Measured:
        """Run one case in a bucket and a JVM of its own, under the store's trace."""
        log = self._home / f"{case.name}.log"
        self._say(f"{case.name}; Spark's log is {log}")
        self._minio.make_bucket(case.name, versioned=case.versioned)
        environment = jobs.environment_of(case, self._endpoints)
        job_process = jobs.job_process(environment=environment, log=log)
        with self._minio.trace(case.name) as finish_trace, job_process as run:
            began = time.monotonic()
            metered = run(jobs.run_case, case, work, self._endpoints)
            seconds = time.monotonic() - began
            requests = finish_trace()
            if case.sink == "parquet":
                rows = run(jobs.count_rows, case.path)
            else:  # Counted without Spark.
                rows = open_table(case.table, connections=Connections.from_environment(environment)).scan().count()
        return Measured(
            case=case,
            apis=tuple(by_api(requests)),
            metered=as_traced(metered),
            phases=phases(requests, checkpoint=case.checkpoint),
            kept=self._minio.kept(case.name),
            expected=expected,
            rows=int(rows),
            seconds=seconds,
        )


def size(count: int) -> str:
    """Format bytes as ``mc`` does: one digit after the point below ten, else none."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit and value < 10 else f"{value:.0f} {_UNITS[unit]}"


def api_table(measured: Measured) -> str:
    """Show the columns of ``mc support top api``."""
    rows: list[tuple[object, ...]] = [("API", "RX", "TX", "CALLS", "ERRORS")]
    rows += [(api.api, size(api.received), size(api.sent), api.calls, api.errors) for api in measured.apis]
    lines = ["{:32}{:<8}{:<8}{:<8}{}".format(*row) for row in rows]
    transferred = f"{size(measured.received)} RX, {size(measured.sent)} TX"
    return "\n".join([*lines, "", f"Total: {measured.total} CALLS, {transferred} - in {measured.seconds:.2f}s"])


def case_report(measured: Measured) -> str:
    """Show one case: its requests, and whether they can be believed."""
    phases, kept, case = measured.phases, measured.kept, measured.case
    difference = ", ".join(
        f"{name} {measured.metered.get(name, 0)} by the meter, {measured.calls.get(name, 0)} in the trace"
        for name in sorted(measured.metered.keys() | measured.calls.keys())
        if measured.metered.get(name, 0) != measured.calls.get(name, 0)
    )
    agreement = f"THE JVM'S METER DIFFERS: {difference}" if difference else "the JVM's meter agrees exactly"
    landed = "as in the topic" if measured.complete else f"BUT THE TOPIC HAS {measured.expected:,}"
    return "\n".join(
        [
            f"{case.manager} · {case.sink} · {case.bucket_kind} bucket\n",
            f"{api_table(measured)}\n",
            f"{phases.batches} batches, {kept.files} files: {phases.startup} requests before the first batch's "
            f"offsets, {phases.first_batch} in the first batch, {phases.per_batch:.1f} in each later one",
            f"left: {kept.objects} objects in {kept.versions} versions, {kept.delete_markers} delete markers",
            f"{measured.rows:,} rows landed, {landed}; {agreement}",
        ]
    )


def comparison(measured: Sequence[Measured], work: Workload) -> str:
    """Show all cases as one Markdown table, with the published figures above them."""
    # The seeds count versions and delete markers in one number.
    references = [
        (seed.name, "parquet", *[""] * 5, f"{seed.per_batch:.1f}", str(seed.total), "", str(seed.kept), *[""] * 3)
        for seed in work.references
    ]
    rows = [_HEADINGS, *references, *map(_row, measured)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _row(measured: Measured) -> tuple[str, ...]:
    case, phases, kept = measured.case, measured.phases, measured.kept
    rows = "all" if measured.complete else f"{measured.rows} OF {measured.expected}"
    return (
        *(case.manager, case.sink, case.bucket_kind, str(phases.batches), str(kept.files)),
        *(str(phases.startup), str(phases.first_batch), f"{phases.per_batch:.1f}", str(measured.total)),
        *(str(kept.objects), str(kept.versions), str(kept.delete_markers)),
        *(rows, "agrees" if measured.meter_agrees else "DIFFERS"),
    )
