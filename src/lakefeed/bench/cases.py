"""The workloads of ``lakefeed bench s3-requests``, and the cases of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from lakefeed.config.blocks import FastPath

Manager = Literal["spark", "abortable", "lakefeed"]
"""``spark``: Spark as it comes. ``abortable``: the same with the checkpoint manager of its hadoop-cloud module.
``lakefeed``: what ``lakefeed run`` does, with lakefeed's settings and manager."""

Sink = Literal["parquet", "iceberg"]

Way = Literal[
    "lakefeed-iceberg",
    "lakefeed-parquet",
    "spark-iceberg",
    "seed",
    "lakefeed-iceberg-off",
    "lakefeed-iceberg-encoder",
    "lakefeed-iceberg-reader",
    "lakefeed-iceberg-auto",
    "lakefeed-parquet-off",
    "lakefeed-parquet-encoder",
    "lakefeed-parquet-reader",
    "lakefeed-parquet-auto",
    "lakefeed-iceberg-ledger",
]
"""A way from a topic to a table that ``bench throughput`` times: lakefeed's, plain Spark's ``from_avro`` into Iceberg,
the seeds' consumer, plain Spark into Parquet, both of lakefeed's with each value of ``fast_path``, and without a
checkpoint."""

WAYS: tuple[Way, ...] = get_args(Way)
FAST_PATHS: Mapping[Way, FastPath] = {
    way: value for way in WAYS for value in get_args(FastPath) if way.endswith(f"-{value}")
}
"""The ways that differ from each other by this option alone; the others have its default."""
WITHOUT_CHECKPOINT: Way = "lakefeed-iceberg-ledger"
USUAL_WAYS: tuple[Way, ...] = tuple(way for way in WAYS if way not in FAST_PATHS and way != WITHOUT_CHECKPOINT)
"""The ways that are timed where none is chosen."""
LIMIT = "limit"
"""The case beside the ways that measures what no job can exceed."""

ShortCommand = Literal["version", "check", "plan", "run-without-checkpoint", "run"]
"""A command that ``bench first-seconds`` times; both runs are ``lakefeed run --once``."""

SHORT_COMMANDS: tuple[ShortCommand, ...] = get_args(ShortCommand)
MANAGERS: tuple[Manager, ...] = get_args(Manager)
SINKS: tuple[Sink, ...] = get_args(Sink)


class SeedReference(NamedTuple):
    """A figure of the published measurements that this bench repeats: requests, and versions with delete markers."""

    name: str
    per_batch: float
    total: int | str = ""
    kept: int | str = ""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The rows to stream and the number of batches; each partition becomes a data file in each batch."""

    name: str
    rows: int
    batches: int
    partitions: int
    conf: Mapping[str, str] = field(default_factory=dict)
    references: tuple[SeedReference, ...] = ()

    @property
    def records_a_batch(self) -> int:
        """Return ``maxOffsetsPerTrigger``; a little more, since Spark divides it by partition and rounds down."""
        return -(-self.rows // self.batches) + self.partitions - 1

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"


def workload(
    name: str, *, rows: int | None = None, batches: int | None = None, partitions: int | None = None
) -> Workload:
    """Return ``six`` (6 batches of 10 files) or ``steady`` (200 small ones, with log compaction and purging)."""
    if name == "six":
        references = (
            SeedReference("seeds: Spark 3.3, default", 912 / 6, total=912, kept=140),
            SeedReference("seeds: Spark 3.3, MinIO's manager", 453 / 6, total=453, kept=84),
        )
        count, files = batches or 6, partitions or 10
        return Workload(name=name, rows=rows or 6_000_000, batches=count, partitions=files, references=references)
    count, files = batches or 200, partitions or 1
    return Workload(
        name=name,
        rows=rows or count * files * 100,
        batches=count,
        partitions=files,
        # Small enough that logs are compacted and expired entries purged for most of the run.
        conf={
            "spark.sql.streaming.minBatchesToRetain": "10",
            "spark.sql.streaming.fileSink.log.compactInterval": "10",
            "spark.sql.streaming.fileSink.log.cleanupDelay": "1s",
        },
        references=(
            SeedReference("seeds: Spark 3.3, default", 699_374 / 6_740),
            SeedReference("seeds: Spark 3.3, MinIO's manager", 361_281 / 15_801),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class RequestCase:
    """One stream to measure, in a JVM and a bucket of its own; the table too is in the bucket."""

    manager: Manager
    sink: Sink
    versioned: bool
    fast_path: FastPath | None = None
    """The option of lakefeed's pipeline; None: its default."""
    has_checkpoint: bool = True

    @property
    def bucket_kind(self) -> str:
        return "versioned" if self.versioned else "plain"

    @property
    def name(self) -> str:
        """Return the name of the case and its bucket."""
        return f"bench-{self.manager}-{self.sink}-{self.bucket_kind}"

    @property
    def checkpoint(self) -> str:
        return f"s3a://{self.name}/checkpoint"

    @property
    def path(self) -> str:
        return f"s3a://{self.name}/trips"

    @property
    def table(self) -> str:
        return f"lake.bench.{self.name.replace('-', '_')}"

    @property
    def warehouse(self) -> str:
        return f"s3://{self.name}/warehouse"


def matrix(*, managers: Iterable[Manager], sinks: Iterable[Sink], versioned: Iterable[bool]) -> list[RequestCase]:
    """Return all combinations."""
    combinations = itertools.product(sinks, versioned, managers)
    return [RequestCase(manager=manager, sink=sink, versioned=kept) for sink, kept, manager in combinations]
