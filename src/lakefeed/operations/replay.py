"""The way back: dead letters decoded with today's schema and policy, landed once, and removed; or just removed.

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
from lakefeed.sinks.dead_letters.query import DeadLetterFilter
from lakefeed.sinks.dead_letters.store import DeadLetterStore

if TYPE_CHECKING:
    from lakefeed.feed.batch_writer import BatchWriter
    from lakefeed.sinks.protocol import LedgerTable

REPLAYS = ".replays"
"""Behind the feed's name, in the name of the fence of its replays (``Ledger.java``)."""


@dataclass(frozen=True)
class Replayed:
    """What a replay did.

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
    """What the commit of a replay carries; no offset ranges, since it moves no position."""

    feed: str
    replay_id: str
    fence: str

    def properties(self) -> dict[str, str]:
        """For the snapshot's summary."""
        return {REPLAY: self.replay_id, REPLAY_OF: self.feed, FENCE: self.fence}


class Replay:
    """Replays the dead letters of one feed.

    Args:
        letters: where they are kept.
        feed: the feed's name.
    """

    def __init__(self, letters: DeadLetterStore, *, feed: str) -> None:
        self._letters = letters
        self._feed = feed

    def run(
        self,
        writer: BatchWriter,
        table: LedgerTable,
        choice: DeadLetterFilter,
        *,
        step: Callable[[str], None] = lambda done: None,
    ) -> Replayed:
        """Lands what can be landed now.

        Args:
            writer: the feed's, begun.
            table: the feed's.
            choice: which letters.
            step: called when a step is done; for tests that cut a replay off.
        """
        # Taking the fence stops any earlier replay, so its marks can be cleared.
        fence = table.take_fence(REPLAYS)
        finished = self.settle(table.ledger)
        judged = writer.rows.classify(self._letters.records(choice))
        verdicts = judged.select(
            *(f"{RECORD}.record.{name}" for name in ("topic", "partition", "offset")),
            f"{RECORD}.reason",
        ).localCheckpoint()
        good = verdicts.filter("reason IS NULL")
        landable, all_letters = good.count(), verdicts.count()
        if landable == 0:
            return Replayed(None, 0, 0, all_letters, finished)
        replay_id = uuid.uuid4().hex
        self._letters.mark(good.select("topic", "partition", "offset"), replay_id)
        step("marked")
        commit = ReplayProperties(self._feed, replay_id, fence)
        committed = writer.write_unbatched(self._letters.marked(replay_id), commit)
        step("landed")
        self._letters.delete_marked(replay_id)
        return Replayed(
            replay_id, committed.rows or 0, committed.outcomes.counts.skipped, all_letters - landable, finished
        )

    def settle(self, ledger: IcebergLedger) -> int:
        """Ends a replay that was cut off; returns how many letters it had landed."""
        finished = 0
        for replay_id in self._letters.open_replays():
            if ledger.has_replay(replay_id):
                finished += self._letters.marked(replay_id).count()
                self._letters.delete_marked(replay_id)
            else:
                self._letters.unmark(replay_id)
        return finished
