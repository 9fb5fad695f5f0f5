"""Operations that a sink supports: its settings declare them, with a text for each refusal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from lakefeed.messages.pages import page_command

Operation: TypeAlias = Literal[
    "rewind", "adopt", "backfill", "replay", "verify", "batch", "lag", "stand_beside", "real_time", "no_checkpoint"
]


@dataclass(frozen=True)
class Refusal:
    """The reason why a sink cannot do an operation.

    Attributes:
        what: the reason in one sentence without a full stop; ``{sink}`` stands for the sink's name in the file.
        hint: what to do next.
    """

    what: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Operations of a sink. A field is None if the sink can do the operation, else the reason why not.

    The defaults fit a sink without a ledger.

    Attributes:
        rewind: move the feed to other offsets.
        adopt: take over another tool's table, at that tool's position.
        backfill: add old records beside the feed.
        replay: write the rows of dead letters again.
        verify: prove by ledger and broker that each record was committed once.
        batch: write a run with one batch, without a streaming query.
        lag: fall behind the feed while the sink is unavailable, and catch up later.
        stand_beside: be a further sink beside the feed's own.
        real_time: write single records, without batches.
        no_checkpoint: resume by the sink's ledger alone, which has the offsets, the topics' ids and the schema.
    """

    rewind: Refusal | None = Refusal(
        "a feed into sink.{sink} cannot be moved: it knows no offsets",
        "name another path and another checkpoint location, which reads the source again",
    )
    adopt: Refusal | None = Refusal(
        "a feed into sink.{sink} takes nothing over from another tool: only an Iceberg table can keep that position",
        "name where the feed begins by source.kafka.start, and a new table or path",
    )
    backfill: Refusal | None = Refusal(
        "a feed into sink.{sink} cannot be backfilled: nothing would keep old records from landing twice",
        "lakefeed read writes old records to a path of their own; or land the feed in an Iceberg table",
    )
    replay: Refusal | None = Refusal("dead letters can be replayed into an Iceberg table only")
    verify: Refusal | None = Refusal(
        "sink.{sink} keeps no ledger of all its commits that could be verified from outside",
        f"land the feed in an Iceberg table; {page_command('sinks')} says what each sink guarantees",
    )
    batch: Refusal | None = None
    lag: Refusal | None = Refusal("{sink} keeps no ledger that it could catch up from", "on_failure: stop")
    stand_beside: Refusal | None = None
    real_time: Refusal | None = Refusal("sink.{sink} takes whole batches only", "trigger: 1 second")
    no_checkpoint: Refusal | None = Refusal("only that says where a feed into sink.{sink} resumes, and by which schema")

    def refusal(self, operation: Operation, *, sink: str) -> Refusal | None:
        """Return why the sink of this name cannot do an operation; None if it can."""
        found: Refusal | None = getattr(self, operation)
        return None if found is None else replace(found, what=found.what.replace("{sink}", sink))


@dataclass(frozen=True, kw_only=True)
class SinkFiles:
    """The files that a batch stores and its requests, for the estimates of ``lakefeed plan``.

    Attributes:
        elsewhere: the place of the rows if a batch writes no files; else None.
        is_unknown: whether the files cannot be estimated.
        merges: whether the number of files depends on which rows a batch replaces.
        reads_rows: whether a batch that ``merges`` reads the table's files.
        is_partitioned: whether a batch writes to several directories or partitions.
        commit_puts: PUT requests of a batch besides those for its files.
        commit_name: a text for these requests, such as "3 of metadata".
    """

    elsewhere: str | None = None
    is_unknown: bool = False
    merges: bool = False
    reads_rows: bool = True
    is_partitioned: bool = False
    commit_puts: int = 0
    commit_name: str = ""
