"""Several sinks of one feed: a batch is read, decoded and transformed once, and landed in each of them.

Guarantee: each sink's own. The others come first and the feed's own sink, ``sink:``, last: where that has a batch, all
have it, save those that wait. A crash in between lets the batch come again, and those with a ledger leave it out.

A sink that may pause is left behind when it fails: its ledger says where it stands, and from there the records are read
again before its next batch, at the next start at the latest. So it needs a ledger, and a transform without state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.errors import translated
from lakefeed.errors import CheckpointMismatch, LakefeedError
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.base import BaseSink
from lakefeed.sinks.protocol import Reread, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

PAUSE_SECONDS = 60
"""How long a sink that has failed is left alone."""


@dataclass
class SecondarySink:
    """A sink beside the feed's own.

    Attributes:
        name: as the pipeline file calls it.
        sink: where its rows go.
        can_lag: whether the feed continues without it when it fails.
        is_new: whether it has never had a batch, so that it begins with the next one.
        failure: why it waits; None if it does not.
    """

    name: str
    sink: Sink
    can_lag: bool
    is_new: bool
    failure: LakefeedError | None = None
    _fence: str | None = None
    _retry_at: float = 0.0
    _columns: tuple[StructType, StoredSchema | None, Sequence[Entry]] | None = None
    _is_ready: bool = field(default=False)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None, entries: Sequence[Entry]) -> None:
        """Makes it take these rows."""
        self._columns = (rows, stored, entries)
        self.sink.apply_schema(rows, stored, entries)

    def take_fence(self) -> None:
        """Makes this driver the only one that can commit to it."""
        if not self._is_ready and self._columns is not None and self.failure is not None:
            self.sink.apply_schema(*self._columns)
        self._fence = self.sink.take_fence()
        self._is_ready = True

    def fenced(self, commit: Commit) -> Commit:
        """The same commit under this sink's own fence."""
        return replace(commit, fence=self._fence)

    def is_due(self) -> bool:
        """Whether it does not wait, or has waited long enough."""
        return self.failure is None or time.monotonic() >= self._retry_at

    def failed(self, error: LakefeedError) -> None:
        """It waits from now on."""
        self.failure = error
        self._retry_at = time.monotonic() + PAUSE_SECONDS
        self._is_ready = False

    def land(self, rows: DataFrame, commit: Commit, *, commit_id: str, again: Reread | None) -> None:
        """Lands a batch, and before it whatever it has missed."""
        if not self._is_ready:
            self.take_fence()
        if self.sink.keeps_ledger:
            starts = {(each.topic, each.partition): each.start for each in commit.ranges.ranges}
            position = self.sink.position()
            if position is None and not self.is_new:
                raise CheckpointMismatch(
                    f"the sink '{self.name}' has had batches of this feed, and holds none any more",
                    where=self.sink.location(),
                    hint="restore it; or give it another name in sinks, under which it starts over",
                )
            if position is not None and position.ranges != commit.ranges:
                self.catch_up(starts, commit.ranges.topic_ids, batch_id=commit.batch_id, feed=commit.feed, again=again)
                if self.sink.has(commit):
                    return
            elif position is not None:
                return
        self.sink.land(rows, self.fenced(commit), commit_id=commit_id)
        self.is_new = False
        self.failure = None

    def catch_up(
        self,
        ends: Mapping[tuple[str, int], int],
        topic_ids: Mapping[str, str],
        *,
        batch_id: int,
        feed: str,
        again: Reread | None,
    ) -> None:
        """Lands the records from where it stands to these offsets, if it lacks any."""
        position = self.sink.position()
        if position is None or again is None:
            return
        stands = {(each.topic, each.partition): each.end for each in position.ranges.ranges}
        ranges = [OffsetRange(*key, stands.get(key, 0), max(end, stands.get(key, 0))) for key, end in ends.items()]
        if not any(each.records for each in ranges):
            return
        if not self._is_ready:
            self.take_fence()
        commit = Commit(feed, batch_id, OffsetRanges(tuple(ranges), topic_ids), fence=self._fence)
        with again([each for each in ranges if each.records]) as (rows, outcomes):
            self.sink.land(rows, commit, commit_id=outcomes.commit_id)
        self.failure = None


class FanOutSink(BaseSink):
    """The feed's own sink and those beside it, as one.

    Args:
        feed: its name.
        main: the feed's own; all that is asked of a feed is asked of it.
        sides: the others.
        note: called when one of them waits, and when it resumes.
    """

    def __init__(self, feed: str, main: Sink, sides: Sequence[SecondarySink], *, note: Callable[[str], None]) -> None:
        self._feed = feed
        self.main = main
        self.sides = tuple(sides)
        self.keeps_ledger, self.keeps_log = main.keeps_ledger, main.keeps_log
        self._note = note
        self._again: Reread | None = None

    def begin(self, reread: Reread | None) -> None:
        """Lets those catch up that lag behind the feed's own sink.

        Args:
            reread: reads records again; None if the query has state, and nothing can be made of them alone.
        """
        self._again = again = reread
        position = self.main.position()
        if position is None:
            return
        ends = {(each.topic, each.partition): each.end for each in position.ranges.ranges}
        for side in self.sides:
            if side.sink.keeps_ledger and not side.is_new:
                ids = position.ranges.topic_ids
                self._alone(side, partial(side.catch_up, ends, ids, batch_id=0, feed=self._feed, again=again))

    def lagging(self) -> dict[str, str]:
        """Those that wait, and why."""
        return {each.name: each.failure.what for each in self.sides if each.failure is not None}

    def stored_schema(self) -> StoredSchema | None:
        """As the feed's own sink remembers it."""
        return self.main.stored_schema()

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Makes all of them take these rows."""
        for side in self.sides:
            self._alone(side, partial(side.apply_schema, rows, stored, entries))
        self.main.apply_schema(rows, stored, entries)

    def location(self) -> str:
        """Where the feed's own sink is."""
        return self.main.location()

    def take_fence(self) -> str | None:
        """Takes each one's fence."""
        for side in self.sides:
            self._alone(side, side.take_fence)
        return self.main.take_fence()

    def commits(self) -> Iterator[Commit]:
        """Of the feed's own sink."""
        return self.main.commits()

    def position(self) -> Position | None:
        """Where the feed's own sink stands."""
        return self.main.position()

    def logged(self) -> int | None:
        """Of the feed's own sink."""
        return self.main.logged()

    def land_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Moves the feed's own sink, where records are given up; the others have the same gap."""
        self.main.land_move(commit, commit_id=commit_id, delete_where=delete_where)
        for side in self.sides:
            if side.sink.keeps_ledger and side.sink.position() is not None:
                side.sink.land_move(side.fenced(commit), commit_id=commit_id, delete_where=delete_where)

    def has(self, commit: Commit) -> bool:
        """Whether the feed's own sink has the batch; the others have it then."""
        return self.main.has(commit)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Computes the rows once and lands them in each sink, in the feed's own last.

        Returns:
            How many rows the feed's own sink has of them, if it can tell.
        """
        assert isinstance(commit, Commit)  # Batches alone come here: see Pipeline.
        kept = rows.persist()
        try:
            kept.count()
            jvm.java(rows.sparkSession).commit.Outcomes.of(commit_id).check()
            for side in self.sides:
                if side.is_due():
                    self._alone(side, partial(side.land, kept, commit, commit_id=commit_id, again=self._again))
            return self.main.land(kept, commit, commit_id=commit_id)
        finally:
            kept.unpersist()

    def _alone(self, side: SecondarySink, act: Callable[[], None]) -> None:
        """Lets a sink that may pause fail by itself."""
        waited = side.failure
        try:
            act()
        except Exception as error:
            if not side.can_lag:
                raise
            side.failed(translated(error))
            if waited is None and side.failure is not None:
                self._note(f"the sink '{side.name}' waits: {side.failure.what}; it catches up by itself")
            return
        if waited is not None and side.failure is None:
            self._note(f"the sink '{side.name}' resumes")
