"""What a run would do, as a document: one plan for each table, and what they come to together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from lakefeed.errors import LakefeedError
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.plan.estimates import Estimates, total
from lakefeed.sinks.dead_letters.store import TopicCreation
from lakefeed.sinks.protocol import TableChange

Kind = Literal["fresh", "goes on", "refused", "waits"]


@dataclass(frozen=True, kw_only=True)
class CheckpointPlan:
    """What becomes of the checkpoint.

    Attributes:
        location: where it is.
        action: ``make`` a new one, ``keep`` it, or ``make anew``: remove it, and begin another where the table is.
        told: one sentence.
    """

    location: str
    action: Literal["make", "keep", "make anew"]
    told: str


@dataclass(frozen=True, kw_only=True)
class PartitionPlan:
    """What is read of one partition.

    Attributes:
        topic: its name.
        partition: the partition.
        start: the first offset that is read.
        first_end: one more than the last offset of the first batch.
        end: one more than the last offset that is there now.
    """

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
        """Offsets that are there now and not landed."""
        return self.end - self.start

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {**asdict(self), "first": self.first, "backlog": self.backlog}


@dataclass(frozen=True, kw_only=True)
class Again:
    """A batch that Spark had planned before the feed ended, and plans again with the same offsets.

    Attributes:
        batch_id: its id.
        ranges: its offsets.
        is_landed: whether the sink has it: then it is left out; else it is the first batch.
    """

    batch_id: int
    ranges: tuple[OffsetRange, ...]
    is_landed: bool


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What a run would do for one table or path.

    Attributes:
        feed: the feed's name.
        topics: those that it reads.
        sink: ``iceberg catalog.namespace.table`` or ``parquet s3a://…``.
        kind: whether the feed begins, continues, would be refused, or waits for its topic's first record.
        start: how, or why not, in a sentence.
        refusal: why the start would be refused; None if it would not.
        checkpoint: what becomes of it; None where the table's ledger is all that there is.
        tables: what becomes of the feed's table, and of those beside it. Only of those that a run gets to.
        dead_letter_topic: a topic for dead letters that is to be made.
        again: a batch that is planned again.
        batch_id: of the first batch that lands records; None where it does not count.
        partitions: what is read.
        batches: how many batches land what is there now.
        estimates: what they cost.
        notes: what one should know of this plan.
    """

    feed: str
    topics: tuple[str, ...]
    sink: str
    kind: Kind
    start: str
    refusal: LakefeedError | None
    checkpoint: CheckpointPlan | None
    tables: tuple[TableChange, ...]
    dead_letter_topic: TopicCreation | None
    again: Again | None
    batch_id: int | None
    partitions: tuple[PartitionPlan, ...]
    batches: int
    estimates: Estimates | None
    notes: tuple[str, ...]

    @property
    def statements(self) -> tuple[str, ...]:
        """All that is said to the catalog before the first batch, in its order; the fence that each start takes not."""
        return tuple(statement for table in self.tables for statement in table.statements)

    @property
    def first_ranges(self) -> tuple[OffsetRange, ...]:
        """The offset ranges of the first batch that lands records."""
        return tuple(OffsetRange(each.topic, each.partition, each.start, each.first_end) for each in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        document = {name: getattr(self, name) for name in ("feed", "topics", "sink", "kind", "start")}
        again = self.again
        return {
            **document,
            "refusal": self.refusal.as_dict() if self.refusal else None,
            "checkpoint": asdict(self.checkpoint) if self.checkpoint else None,
            "tables": [asdict(each) for each in self.tables],
            "dead_letter_topic": asdict(self.dead_letter_topic) if self.dead_letter_topic else None,
            "again": {**asdict(again), "ranges": [str(each) for each in again.ranges]} if again else None,
            "batch_id": self.batch_id,
            "partitions": [each.as_dict() for each in self.partitions],
            "batches": self.batches,
            "estimates": asdict(self.estimates) if self.estimates else None,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class Plans:
    """What a run of a pipeline would do.

    Attributes:
        pipeline: its name.
        tables: one plan for each table; only one, unless each topic has a table of its own.
    """

    pipeline: str
    tables: tuple[RunPlan, ...]

    @property
    def refusals(self) -> tuple[LakefeedError, ...]:
        """Why starts would be refused."""
        return tuple(each.refusal for each in self.tables if each.refusal)

    @property
    def total(self) -> Estimates | None:
        """What all of them cost that would start; None if none would."""
        known = [each.estimates for each in self.tables if each.estimates]
        return total(known) if known else None

    @property
    def exit_status(self) -> int:
        """0 if each table would start, else as a run would end: by the refusal, or 1 if it is one of many tables."""
        if not self.refusals:
            return 0
        return self.refusals[0].exit_status if len(self.tables) == 1 else 1

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            "pipeline": self.pipeline,
            "starts": not self.refusals,
            "tables": [each.as_dict() for each in self.tables],
            "batches": sum(each.batches for each in self.tables),
            "total": asdict(self.total) if self.total else None,
        }
