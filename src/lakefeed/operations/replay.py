"""Land dead letters with the current schema and policy, exactly once, and remove them.

A replay has three steps. It marks the letters that can now be rows with its id. It appends their rows to the feed's
table in one commit with that id. It deletes the marked letters. If a replay was interrupted, the next one checks
whether the table has the marked id: if so, it deletes the letters; if not, it removes the marks and starts over.
If the sink refuses some of the rows, the replay isolates their letters, removes the marks, and tries the others.
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
"""The suffix of the feed's name in the name of its replays' fence (``Ledger.java``)."""


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    Attributes:
        replay_id: the id in its commit in the table; None if there was nothing to land.
        rows: the number of rows written: a transform may make several rows of a letter, or none.
        skipped: letters that the current policy skips.
        still_dead: letters that still cannot be rows; their reasons are updated.
        finished_earlier: letters removed because an earlier replay, interrupted after its commit, had landed them.
    """

    replay_id: str | None
    rows: int
    skipped: int
    still_dead: int
    finished_earlier: int


@dataclass(frozen=True)
class MarkedLetters:
    """The letters that a replay lands; a range in ``Replay.ranges`` is a part of these letters, by index."""

    records: DataFrame

    @cached_property
    def positions(self) -> list[tuple[str, int, int]]:
        return sorted(tuple(each) for each in self.records.select("topic", "partition", "offset").collect())

    def offsets(self, part: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return offset ranges that contain the letters of a part and no other letters."""
        of_part = (each for span in part for each in self.positions[span.start : span.end])
        groups = (list(group) for _, group in groupby(of_part, key=lambda each: each[:2]))
        return [OffsetRange(*group[0], group[-1][2] + 1) for group in groups]

    def read(self, part: Sequence[OffsetRange]) -> DataFrame:
        """Read the records of a part of the letters."""
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
    """Land the chosen dead letters of one feed that can be rows now; ``step`` lets tests interrupt a replay.

    Letters whose rows cannot be computed, or are refused by the table, stay dead letters; all others are landed.
    """
    # The fence stops an earlier replay that still runs, so its marks can be removed.
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
        # All marked letters are deleted after the commit, so it may only succeed if each of them becomes a row.
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
    """Finish interrupted replays; return the number of letters that these had landed."""
    finished = 0
    for replay_id in letters.open_replays():
        if ledger.has_replay(replay_id):
            finished += letters.marked(replay_id).count()
            letters.delete_marked(replay_id)
        else:
            letters.unmark(replay_id)
    return finished
