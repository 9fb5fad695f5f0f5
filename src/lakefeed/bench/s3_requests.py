"""How many requests a stream makes to S3, counted by the store itself: ``lakefeed bench s3-requests``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakefeed.bench import jobs
from lakefeed.bench.cases import RequestCase, Workload
from lakefeed.bench.minio import Kept, MinioClient
from lakefeed.bench.own_process import environment_for, started
from lakefeed.bench.trace import ApiCalls, Phases, as_traced, by_api, phases
from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.connections import Connections
from lakefeed.local import Endpoints


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One case, measured.

    Attributes:
        case: what was run.
        apis: the store's count by API.
        metered: the JVM's own count, under the store's names.
        phases: start-up and steady state.
        kept: what is left in the bucket when the JVM has ended.
        expected: rows in the topic.
        rows: rows in the table.
        seconds: start of the JVM to the end of the query.
    """

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
        """Requests, as the store counted them."""
        return sum(each.calls for each in self.apis)

    @property
    def calls(self) -> dict[str, int]:
        """Requests by API."""
        return {each.api: each.calls for each in self.apis}

    @property
    def meter_agrees(self) -> bool:
        """Whether the JVM has counted exactly what the store has, API by API."""
        return self.metered == self.calls

    @property
    def complete(self) -> bool:
        """Whether the table has as many rows as the topic."""
        return self.rows == self.expected

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            "manager": self.case.manager,
            "sink": self.case.sink,
            "versioned": self.case.versioned,
            "batches": self.phases.batches,
            "files": self.kept.data_files,
            "calls": self.calls,
            "errors": sum(each.errors for each in self.apis),
            "received_bytes": sum(each.received for each in self.apis),
            "sent_bytes": sum(each.sent for each in self.apis),
            "total": self.total,
            "startup": self.phases.startup,
            "first_batch": self.phases.first,
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
    """Cases on one running stack whose store is MinIO.

    Args:
        endpoints: the stack; nothing else may use it meanwhile, as every request counts.
        home: a directory for traces and logs.
        say: called with what is about to happen.
    """

    def __init__(self, endpoints: Endpoints, *, home: Path, say: Callable[[str], None]) -> None:
        self._endpoints = endpoints
        self._home = home
        self._say = say
        self._minio = MinioClient(endpoints, home=home)

    def fill_topic(self, work: Workload) -> int:
        """Makes and fills the workload's topic; the number of its records."""
        self._say(f"producing {work.rows:,} trips into {work.partitions} partitions")
        Topics(self._endpoints.bootstrap_servers).create(work.topic, partitions=work.partitions)
        environment = self._endpoints.as_environment()
        with started(
            jobs.fill_topic, work, self._endpoints, environment=environment, log=self._home / "produce.log"
        ) as job:
            return int(job.hear())

    def measure(self, case: RequestCase, work: Workload, *, expected: int) -> Measured:
        """Runs one case in a bucket and a JVM of its own, under the store's trace.

        Raises:
            JobFailed: the stream failed; the error names its log.
        """
        log = self._home / f"{case.name}.log"
        self._say(f"{case.name}; Spark's log is {log}")
        self._minio.make_bucket(case.name, versioned=case.versioned)
        environment = environment_for(self._endpoints, warehouse=case.warehouse)
        with self._minio.trace(case.name) as trace:
            began = time.monotonic()
            with started(jobs.run_case, case, work, self._endpoints, environment=environment, log=log) as job:
                streamed: jobs.Streamed = job.hear()
                seconds = time.monotonic() - began
                requests = trace.finish()
                job.proceed()
                rows = int(job.hear()) if case.sink == "parquet" else self._rows_of(case)
        kept = self._minio.kept(case.name)
        return Measured(
            case=case,
            apis=tuple(by_api(requests)),
            metered=as_traced(streamed.metered),
            phases=phases(requests, checkpoint=case.checkpoint),
            kept=kept,
            expected=expected,
            rows=rows,
            seconds=seconds,
        )

    def _rows_of(self, case: RequestCase) -> int:
        """Rows of the Iceberg table, read without Spark."""
        connections = Connections.from_environment(environment_for(self._endpoints, warehouse=case.warehouse))
        return int(open_table(case.table, connections=connections).scan().count())


def difference(measured: Measured) -> str:
    """Where meter and trace differ, for people."""
    names = sorted(measured.metered.keys() | measured.calls.keys())
    return ", ".join(
        f"{name} {measured.metered.get(name, 0)} by the meter, {measured.calls.get(name, 0)} in the trace"
        for name in names
        if measured.metered.get(name, 0) != measured.calls.get(name, 0)
    )
