"""What ``lakefeed bench s3-requests`` runs: workloads, and cases of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Manager = Literal["spark", "abortable", "lakefeed"]
"""``spark``: Spark as it comes. ``abortable``: the same with the checkpoint manager of its hadoop-cloud module.
``lakefeed``: what ``lakefeed run`` does, with lakefeed's settings and manager."""

Sink = Literal["parquet", "iceberg"]

MANAGERS: tuple[Manager, ...] = get_args(Manager)
SINKS: tuple[Sink, ...] = get_args(Sink)

CHECKPOINT_CLASS: Mapping[Manager, str] = {
    "abortable": "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
}
"""The managers that plain Spark is configured with; its own default is none of them."""


@dataclass(frozen=True, kw_only=True)
class SeedReference:
    """A figure of the published measurements that this bench repeats.

    Attributes:
        name: what was measured there.
        total: requests of the whole job; None where only the mean is of use.
        per_batch: requests by batches.
        kept: object versions and delete markers together, as ``mc ls --versions`` counts them.
    """

    name: str
    total: int | None
    per_batch: float
    kept: int | None = None


@dataclass(frozen=True, kw_only=True)
class Workload:
    """How much is streamed, and in how many pieces.

    Attributes:
        name: ``six`` or ``steady``.
        rows: in the topic.
        batches: micro-batches that read them.
        partitions: of the topic; each becomes a task and a data file in each batch.
        conf: Spark settings that all cases get.
        references: what it is compared with.
    """

    name: str
    rows: int
    batches: int
    partitions: int
    conf: Mapping[str, str] = field(default_factory=dict)
    references: tuple[SeedReference, ...] = ()

    @property
    def records_a_batch(self) -> int:
        """For ``maxOffsetsPerTrigger``. Spark shares it out by partition and rounds down: hence a little more."""
        return -(-self.rows // self.batches) + self.partitions - 1

    @property
    def topic(self) -> str:
        """The topic's name."""
        return f"bench-{self.name}"


def workload(
    name: str, *, rows: int | None = None, batches: int | None = None, partitions: int | None = None
) -> Workload:
    """A workload; what is not said has its default.

    Args:
        name: ``six`` (6 batches of 10 files, 6,000,000 rows) or ``steady`` (200 batches of 1 file, 100 rows each,
            with log compaction and purging).
        rows: in the topic.
        batches: micro-batches.
        partitions: files a batch.
    """
    if name == "six":
        return Workload(
            name=name,
            rows=rows or 6_000_000,
            batches=batches or 6,
            partitions=partitions or 10,
            references=(
                SeedReference(name="seeds: Spark 3.3, default", total=912, per_batch=912 / 6, kept=140),
                SeedReference(name="seeds: Spark 3.3, MinIO's manager", total=453, per_batch=453 / 6, kept=84),
            ),
        )
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
            SeedReference(name="seeds: Spark 3.3, default", total=None, per_batch=699_374 / 6_740),
            SeedReference(name="seeds: Spark 3.3, MinIO's manager", total=None, per_batch=361_281 / 15_801),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class RequestCase:
    """One stream to measure, in a JVM and a bucket of its own."""

    manager: Manager
    sink: Sink
    versioned: bool

    @property
    def name(self) -> str:
        """Also the bucket's and, with underscores, the table's."""
        return f"bench-{self.manager}-{self.sink}-{'versioned' if self.versioned else 'plain'}"

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps its logs."""
        return f"s3a://{self.name}/checkpoint"

    @property
    def path(self) -> str:
        """Where Parquet files go."""
        return f"s3a://{self.name}/trips"

    @property
    def table(self) -> str:
        """The Iceberg table."""
        return f"lake.bench.{self.name.replace('-', '_')}"

    @property
    def warehouse(self) -> str:
        """The catalog's, so that the table too is in the case's bucket."""
        return f"s3://{self.name}/warehouse"


def matrix(*, managers: Iterable[Manager], sinks: Iterable[Sink], versioned: Iterable[bool]) -> list[RequestCase]:
    """All combinations."""
    return [
        RequestCase(manager=manager, sink=sink, versioned=kept)
        for sink, kept, manager in itertools.product(sinks, versioned, managers)
    ]
