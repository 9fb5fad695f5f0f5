"""The operations that a sink supports, and the reasons why it refuses others."""

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
        what: the reason in one sentence without a full stop; ``{sink}`` stands for the kind of sink.
        hint: what to do next.
    """

    what: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The operations of a sink; a field is None if the sink supports the operation, else the reason why not.

    The defaults are those of a sink without a ledger.

    Attributes:
        rewind: move the feed to other offsets.
        adopt: continue another tool's table from the position of that tool.
        backfill: add old records while the feed runs.
        replay: write rows from dead letters.
        verify: compare the ledger with the broker to prove that each record was committed once.
        batch: write one batch without a streaming query.
        lag: fall behind the feed while the sink is unavailable, and catch up later.
        stand_beside: be one of ``sinks``, beside the feed's own sink.
        real_time: write single records, without batches.
        no_checkpoint: resume from the sink's ledger alone, which has the offsets, the topics' ids and the schema.
    """

    rewind: Refusal | None = Refusal(
        "a feed into sink.{sink} cannot be moved: the sink stores no offsets",
        "to read the source again, set another path and another checkpoint location",
    )
    adopt: Refusal | None = Refusal(
        "sink.{sink} cannot continue from another tool's position: only an Iceberg table can store that position",
        "set source.kafka.start to the position, and name a new table or path",
    )
    backfill: Refusal | None = Refusal(
        "a feed into sink.{sink} cannot be backfilled: old records could be written twice",
        "write old records to another path with lakefeed read, or land the feed in an Iceberg table",
    )
    replay: Refusal | None = Refusal(
        "dead letters of a feed into sink.{sink} cannot be replayed: only an Iceberg table can store their rows",
        "land the feed in an Iceberg table",
    )
    verify: Refusal | None = Refusal(
        "sink.{sink} keeps no ledger of its commits that could be verified",
        f"land the feed in an Iceberg table; {page_command('sinks')} lists the guarantees of the sinks",
    )
    batch: Refusal | None = None
    lag: Refusal | None = Refusal("{sink} keeps no ledger from which it could catch up", "write on_failure: stop")
    stand_beside: Refusal | None = None
    real_time: Refusal | None = Refusal("sink.{sink} writes whole batches only", "write trigger: 1 second")
    no_checkpoint: Refusal | None = Refusal("sink.{sink} does not store where the feed resumes, and with which schema")

    def refusal(self, operation: Operation, *, sink: str) -> Refusal | None:
        """Return why a sink of this kind cannot do an operation; None if it can."""
        found: Refusal | None = getattr(self, operation)
        return None if found is None else replace(found, what=found.what.replace("{sink}", sink))


@dataclass(frozen=True, kw_only=True)
class SinkFiles:
    """The files and requests of a batch, for the estimates of ``lakefeed plan``.

    Attributes:
        elsewhere: the destination of the rows if a batch writes no files; else None.
        is_unknown: whether the files cannot be estimated.
        merges: whether the number of files depends on which rows a batch replaces.
        reads_rows: whether a batch that ``merges`` reads the table's files.
        is_partitioned: whether a batch writes to several directories or partitions.
        commit_puts: the number of PUT requests of a batch besides those for its files.
        commit_name: what these requests write, such as "3 of metadata".
    """

    elsewhere: str | None = None
    is_unknown: bool = False
    merges: bool = False
    reads_rows: bool = True
    is_partitioned: bool = False
    commit_puts: int = 0
    commit_name: str = ""
