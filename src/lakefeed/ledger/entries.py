"""A feed's ledger as numbered texts, which a sink stores beside its rows.

Every commit, fence or move is one entry with the next number. The sink refuses a number that it already has. So only
one of two drivers can write the next entry, and the other driver notices that it was replaced. If the sink stores a
batch's rows and entry in one transaction, the batch lands exactly once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from lakefeed.clients.spark.errors import ONE_PLACE
from lakefeed.errors import ConfigError, TableBusy
from lakefeed.lazy import DataFrame
from lakefeed.ledger.continuity import ServerLedger, StoredCommit, fence_lost, next_fence
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import Commit

TRIES = 20


@dataclass(frozen=True)
class Batch:
    """A batch, a fence or a move, as a sink stores it."""

    feed: str
    number: int
    """The number of the feed's entry: 1, 2, 3 and so on. In a sink without a ledger, it is Spark's batch id."""
    entry: str
    """The text of the feed's entry: the batch's offset ranges and record counts."""


class EntryStore(Protocol):
    """The methods of a sink that the ledger calls: see ``lakefeed.sinks.base``."""

    def entries(self) -> Iterable[str]: ...

    def write(self, rows: DataFrame | None, batch: Batch) -> None: ...


@dataclass(frozen=True)
class _Entry:
    """A stored entry. A fence's entry repeats the newest commit, so the newest entry always has the feed's position."""

    number: int
    fence: str | None
    commits: int = 0
    """The number of commits up to this entry, including its own."""
    commit: str | None = None
    commit_id: str = ""
    at: float = 0.0
    is_fence: bool = False

    @property
    def stored(self) -> StoredCommit | None:
        if self.commit is None:
            return None
        return StoredCommit(Commit.from_json(self.commit, number=self.commits, committed_at=self.at), self.commit_id)


class EntryLedger(ServerLedger):
    def __init__(self, feed: str, store: EntryStore, *, where: str) -> None:
        super().__init__(feed, where=where)
        self._store = store

    def position(self) -> Position | None:
        newest = self._newest()
        return newest.stored.position if newest is not None and newest.stored is not None else None

    def commits(self) -> Iterator[Commit]:
        for entry in self._entries():
            if not entry.is_fence and entry.stored is not None:
                yield entry.stored.commit

    def fence_taken(self) -> str | None:
        newest = self._newest()
        return None if newest is None else newest.fence

    def take_fence(self) -> str:
        for attempt in range(TRIES):
            newest = self._newest() or _Entry(0, None)
            fence = next_fence(newest.fence)
            try:
                self._write(None, replace(newest, number=newest.number + 1, fence=fence, is_fence=True))
            except Exception:
                # Either another driver took the number, or the sink stored this fence and the sink's answer was lost.
                taken = self._newest()
                if taken is not None and taken.fence == fence:
                    return fence
                if taken is None or taken.number <= newest.number or attempt == TRIES - 1:
                    raise
                continue
            return fence
        raise TableBusy("other drivers keep taking the feed over", where=self.where, hint=ONE_PLACE)

    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        if delete_where is not None:
            what = "this sink cannot delete rows with a move of the feed's position"
            hint = "move the feed with --keep-rows, and delete the rows in the sink yourself"
            raise ConfigError(what, where=self.where, hint=hint)
        self.add(None, commit, commit_id=commit_id)

    def add(self, rows: DataFrame | None, commit: Commit, *, commit_id: str) -> None:
        """Store rows and their commit, unless the sink already has them. The errors are those of ``admit``."""
        newest = self._newest()
        if newest is None:
            if commit.fence is not None:
                raise self.removed("its entries")
            newest = _Entry(0, None)
        if self.admit(commit, commit_id=commit_id, last=newest.stored, fence=newest.fence) is not CommitCheck.NEW:
            return
        entry = _Entry(newest.number + 1, commit.fence, newest.commits + 1, commit.to_json(), commit_id, time.time())
        try:
            self._write(rows, entry)
        except Exception:
            # If the sink stored nothing, raise its error. Otherwise its answer was lost, or another driver wrote first.
            taken = self._newest()
            if taken is None or taken.number < entry.number:
                raise
            if taken.commit_id != commit_id:
                raise fence_lost(taken.fence, commit.fence, where=self.where) from None

    def _write(self, rows: DataFrame | None, entry: _Entry) -> None:
        text = json.dumps(asdict(entry), separators=(",", ":"))
        self._store.write(rows, Batch(self.feed, entry.number, text))

    def _newest(self) -> _Entry | None:
        return next(self._entries(), None)

    def _entries(self) -> Iterator[_Entry]:
        last = None
        for text in self._store.entries():
            entry = _Entry(**json.loads(text))
            if last is not None and entry.number >= last:
                raise ConfigError(
                    f"the sink's entries() yields entry {entry.number} after entry {last}, but has to yield the newest "
                    "entry first",
                    where=self.where,
                    hint="sort the entries in entries(), in SQL with ORDER BY number DESC",
                )
            last = entry.number
            yield entry
