"""Land dead letters with today's schema and policy, once, and remove them.

A replay is three steps: the letters that can be rows now are marked with the replay's id; their rows are appended to
the feed's table in one commit that carries the id; the marked letters are deleted. Wherever it is cut off, the next
replay looks whether the table has the marked id, and then deletes the letters, or takes the mark away and begins again.
So does a replay itself where the sink refuses some of the rows: it isolates their letters, and tries the others.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import groupby
from operator import or_
from typing import TYPE_CHECKING

from lakefeed.feed.batch_writer import Committed, Isolated
from lakefeed.lazy import DataFrame, sf
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.snapshot_summary import Replay
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.decode import RECORD
from lakefeed.sinks.dead_letters.store import DeadLetterFilter, DeadLetterStore

if TYPE_CHECKING:
    from lakefeed.feed.batch_writer import BatchWriter
    from lakefeed.sinks.definition import LedgerTable

REPLAYS = ".replays"
"""Behind the feed's name, in the name of the fence of its replays (``Ledger.java``)."""


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    Attributes:
        replay_id: marks its commit in the table; None if there was nothing to land.
        rows: rows written: a transform may make several of a letter, or none.
        skipped: letters that today's policy leaves out.
        still_dead: letters that cannot be rows today either; each has today's reason.
        finished_earlier: letters removed because an earlier replay, cut off after its commit, had landed them.
    """

    replay_id: str | None
    rows: int
    skipped: int
    still_dead: int
    finished_earlier: int


@dataclass(frozen=True)
class MarkedLetters:
    """The letters that a replay is to land; a range of ``Replay.ranges`` is a part of them, by position."""

    records: DataFrame

    @cached_property
    def positions(self) -> list[tuple[str, int, int]]:
        return sorted(tuple(each) for each in self.records.select("topic", "partition", "offset").collect())

    def offsets(self, part: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges of offsets in which no letters but those of a part lie."""
        of_part = (each for span in part for each in self.positions[span.start : span.end])
        groups = (list(group) for _, group in groupby(of_part, key=lambda each: each[:2]))
        return [OffsetRange(*group[0], group[-1][2] + 1) for group in groups]

    def read(self, part: Sequence[OffsetRange]) -> DataFrame:
        """Read the records of a part."""
        topic, partition, offset = sf.col("topic"), sf.col("partition"), sf.col("offset")
        spans = (
            (topic == each.topic) & (partition == each.partition) & offset.between(each.start, each.end - 1)
            for each in self.offsets(part)
        )
        return self.records.filter(reduce(or_, spans, sf.lit(False)))


def replay(
    letters: DeadLetterStore,
    choice: DeadLetterFilter,
    *,
    feed: str,
    writer: BatchWriter,
    table: LedgerTable,
    step: Callable[[str], None] = lambda done: None,
) -> Replayed:
    """Land the chosen dead letters of one feed that can be rows now; ``step`` lets tests cut a replay off.

    Those whose rows cannot be computed, or are refused by the table, stay dead letters: the others are landed.
    """
    # Taking the fence stops any earlier replay, so its marks can be cleared.
    fence = table.take_fence(REPLAYS)
    finished = _finish_earlier(letters, table.ledger)
    while True:
        classified = writer.rows.classify(letters.records(choice))
        columns = [f"{RECORD}.{name}" for name in ("record.topic", "record.partition", "record.offset", "reason")]
        verdicts = classified.select(*columns).localCheckpoint()
        good = verdicts.filter("reason IS NULL").drop("reason")
        landable, still_dead = good.count(), verdicts.filter("reason IS NOT NULL")
        if landable == 0:
            replay_id, rows, skipped = None, 0, 0
            break
        replay_id = uuid.uuid4().hex
        letters.mark(good, replay_id)
        step("marked")
        marked = MarkedLetters(letters.marked(replay_id))
        # A letter that is marked is deleted after the commit, so each has to be a row of it.
        attempting = writer.of_only_rows(marked.read)
        match attempting.attempt(marked.records, Replay(feed, replay_id, fence, landable)):
            case Committed(landed, outcomes):
                step("landed")
                letters.delete_marked(replay_id)
                rows, skipped = landed or 0, outcomes.counts.skipped
                break
            case Isolated(failing):
                found = {span: why for part, why in failing.items() for span in marked.offsets([part])}
                attempting.prepare_next(Isolated(found), marked.records)
            case refused:
                attempting.prepare_next(refused, marked.records)
        letters.unmark(replay_id)
    left = still_dead.count()
    if left:
        letters.judge_again(still_dead)
    return Replayed(replay_id, rows, skipped, left, finished)


def _finish_earlier(letters: DeadLetterStore, ledger: IcebergLedger) -> int:
    """Finish replays that were cut off; return how many letters they had landed."""
    finished = 0
    for replay_id in letters.open_replays():
        if ledger.has_replay(replay_id):
            finished += letters.marked(replay_id).count()
            letters.delete_marked(replay_id)
        else:
            letters.unmark(replay_id)
    return finished
