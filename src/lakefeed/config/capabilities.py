"""Operations that a sink supports, declared by its settings, with the text of each refusal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from lakefeed.messages.pages import page_command

Operation: TypeAlias = Literal[
    "rewind", "adopt", "backfill", "replay", "verify", "batch", "lag", "stand_beside", "real_time", "no_checkpoint"
]


@dataclass(frozen=True)
class Refusal:
    """Why a sink cannot do something.

    Attributes:
        what: one sentence without a full stop; ``{sink}`` stands for the sink's name in the pipeline file.
        hint: what to do next.
    """

    what: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Operations of a sink. Each field is None if the sink can, else why not.

    The defaults are those of a sink that keeps no ledger.

    Attributes:
        rewind: move the feed to other offsets.
        adopt: take a table over from another tool, at that tool's position.
        backfill: add old records beside the feed.
        replay: write the rows of dead letters again.
        verify: prove from outside that each record was committed once.
        batch: write a bounded run, which has no batch of a query.
        lag: fall behind the feed while it is unavailable, and catch up.
        stand_beside: be one of several sinks, beside the feed's own.
        real_time: write each record by itself.
        no_checkpoint: resume without a checkpoint: the sink's ledger has the offsets, the topics' ids and the schema.
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
        """Return why the sink of this name cannot do something; None if it can."""
        found: Refusal | None = getattr(self, operation)
        return None if found is None else replace(found, what=found.what.replace("{sink}", sink))


@dataclass(frozen=True, kw_only=True)
class SinkFiles:
    """Files and requests of a batch in the object store, for the estimates of ``lakefeed plan``.

    Attributes:
        elsewhere: where the rows go instead; None if they go to files.
        is_unknown: whether nothing can be said of the files.
        merges: whether a batch reads and rewrites files by the keys of its rows.
        is_partitioned: whether a batch writes to several directories or partitions.
        commit_puts: PUT requests of a batch beside its files.
        commit_name: what these requests write, as in "3 of metadata".
    """

    elsewhere: str | None = None
    is_unknown: bool = False
    merges: bool = False
    is_partitioned: bool = False
    commit_puts: int = 0
    commit_name: str = ""
