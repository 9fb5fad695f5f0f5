"""Land dead letters with today's schema and policy, once, and remove them.

A replay is three steps: the letters that can be rows now are marked with the replay's id; their rows are appended to
the feed's table in one commit that carries the id; the marked letters are deleted. Wherever it is cut off, the next
replay looks whether the table has the marked id, and then deletes the letters, or takes the mark away and begins again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.snapshot_summary import FENCE, REPLAY, REPLAY_OF
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
        still_dead: letters that cannot be rows today either.
        finished_earlier: letters removed because an earlier replay, cut off after its commit, had landed them.
    """

    replay_id: str | None
    rows: int
    skipped: int
    still_dead: int
    finished_earlier: int


@dataclass(frozen=True)
class ReplayProperties:
    """The properties of a replay's commit; no offset ranges, since it moves no position."""

    feed: str
    replay_id: str
    fence: str

    def properties(self) -> dict[str, str]:
        """Return the properties for the snapshot's summary."""
        return {REPLAY: self.replay_id, REPLAY_OF: self.feed, FENCE: self.fence}


def replay(
    letters: DeadLetterStore,
    choice: DeadLetterFilter,
    *,
    feed: str,
    writer: BatchWriter,
    table: LedgerTable,
    step: Callable[[str], None] = lambda done: None,
) -> Replayed:
    """Land the chosen dead letters of one feed that can be rows now; ``step`` lets tests cut a replay off."""
    # Taking the fence stops any earlier replay, so its marks can be cleared.
    fence = table.take_fence(REPLAYS)
    finished = _finish_earlier(letters, table.ledger)
    classified = writer.rows.classify(letters.records(choice))
    columns = [f"{RECORD}.{name}" for name in ("record.topic", "record.partition", "record.offset", "reason")]
    verdicts = classified.select(*columns).localCheckpoint()
    good = verdicts.filter("reason IS NULL")
    landable, chosen = good.count(), verdicts.count()
    if landable == 0:
        return Replayed(None, 0, 0, chosen, finished)
    replay_id = uuid.uuid4().hex
    letters.mark(good.select("topic", "partition", "offset"), replay_id)
    step("marked")
    committed = writer.commit_rows(letters.marked(replay_id), ReplayProperties(feed, replay_id, fence))
    step("landed")
    letters.delete_marked(replay_id)
    return Replayed(replay_id, committed.rows or 0, committed.outcomes.counts.skipped, chosen - landable, finished)


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
