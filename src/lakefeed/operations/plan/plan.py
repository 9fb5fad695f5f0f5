"""The plan of a run as a document: one plan for each table, and their sums."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lakefeed.errors import LakefeedError
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.plan.estimates import Estimates, total
from lakefeed.sinks.dead_letters.store import TopicCreation
from lakefeed.sinks.definition import TableChange


@dataclass(frozen=True, kw_only=True)
class CheckpointPlan:
    """The fate of the checkpoint, and a sentence about it; ``make anew`` begins another where the table is."""

    location: str
    action: Literal["make", "keep", "make anew"]
    told: str


@dataclass(frozen=True, kw_only=True)
class PartitionPlan:
    """The offsets that are read of one partition: ``[start, first_end)`` by the first batch, up to ``end`` by all."""

    topic: str
    partition: int
    start: int
    first_end: int
    end: int

    @property
    def first(self) -> int:
        """Offsets of the first batch."""
        return self.first_end - self.start

    @property
    def backlog(self) -> int:
        """Offsets that are in the topic now and have not landed."""
        return self.end - self.start

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        return {**asdict(self), "first": self.first, "backlog": self.backlog}


@dataclass(frozen=True, kw_only=True)
class Again:
    """A batch that Spark had planned before the feed ended, and plans again with the same offsets.

    If it ``is_landed``, the sink has it, and it is left out; else it is the first batch.
    """

    batch_id: int
    ranges: tuple[OffsetRange, ...]
    is_landed: bool


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The effects of a run on one table or path.

    Attributes:
        sink: ``iceberg catalog.namespace.table`` or ``parquet s3a://…``.
        kind: whether the feed begins, continues, would be refused, or waits for its topic's first record.
        start: how, or why not, in a sentence.
        checkpoint: None where the table's ledger is all that there is.
        tables: changes of the feed's table, and of those beside it. Only of those that a run gets to.
        batch_id: of the first batch that lands records; None where it does not count.
        batches: how many batches land what is there now.
    """

    feed: str
    topics: tuple[str, ...]
    sink: str
    kind: Literal["fresh", "goes on", "refused", "waits"]
    start: str
    refusal: LakefeedError | None = None
    checkpoint: CheckpointPlan | None = None
    tables: tuple[TableChange, ...] = ()
    dead_letter_topic: TopicCreation | None = None
    again: Again | None = None
    batch_id: int | None = None
    partitions: tuple[PartitionPlan, ...] = ()
    batches: int = 0
    estimates: Estimates | None = None
    notes: tuple[str, ...] = ()

    @property
    def statements(self) -> tuple[str, ...]:
        """All statements before the first batch, in their order; without the fence that each start takes."""
        return tuple(statement for table in self.tables for statement in table.statements)

    @property
    def first_ranges(self) -> tuple[OffsetRange, ...]:
        """The offset ranges of the first batch that lands records."""
        return tuple(OffsetRange(each.topic, each.partition, each.start, each.first_end) for each in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        document = asdict(replace(self, refusal=None))
        document["refusal"] = self.refusal.as_dict() if self.refusal else None
        document["partitions"] = [each.as_dict() for each in self.partitions]
        if self.again is not None:
            document["again"]["ranges"] = [str(each) for each in self.again.ranges]
        return document


@dataclass(frozen=True, kw_only=True)
class Plans:
    """The effects of a run of a pipeline: one plan, or one for each topic that has a table of its own."""

    pipeline: str
    tables: tuple[RunPlan, ...]

    @property
    def refusals(self) -> tuple[LakefeedError, ...]:
        """Why starts would be refused."""
        return tuple(each.refusal for each in self.tables if each.refusal)

    @property
    def total(self) -> Estimates | None:
        """The cost of all tables that would start; None if none would."""
        known = [each.estimates for each in self.tables if each.estimates]
        return total(known) if known else None

    @property
    def exit_status(self) -> int:
        """0 if each table would start, else as a run would end: by the refusal, or 1 if it is one of many tables."""
        if not self.refusals:
            return 0
        return self.refusals[0].exit_status if len(self.tables) == 1 else 1

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        return {
            "pipeline": self.pipeline,
            "starts": not self.refusals,
            "tables": [each.as_dict() for each in self.tables],
            "batches": sum(each.batches for each in self.tables),
            "total": asdict(self.total) if self.total else None,
        }
