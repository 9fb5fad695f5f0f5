"""Declares what a feed asks of a sink: where it stands, its columns, and one commit a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import SinkState
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.records.schema.reader import SchemaKeeper

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class MovableSink(SinkState, Protocol):
    """What a start asks of a sink."""

    def location(self) -> str:
        """Where its files are."""

    def land_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Commits a move of the feed."""


class RowSink(SchemaKeeper, Protocol):
    """Where rows go, in one commit."""

    keeps_ledger: bool
    """Whether it says which offsets it holds."""

    def position(self) -> Position | None:
        """Where the feed stands; None if the sink has nothing of it, or keeps no ledger."""

    def take_fence(self) -> str | None:
        """Makes this driver the only one that can commit to the feed; None if the sink knows no fences."""

    def commits(self) -> Iterator[Commit]:
        """The feed's commits, newest first; none if the sink keeps no ledger."""

    def has(self, commit: Commit) -> bool:
        """Whether the sink has this batch already."""

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Writes a batch in one commit; returns how many rows it wrote, or None if its log has the batch already."""


class Sink(RowSink, MovableSink, Protocol):
    """Where the rows of a feed go, one batch in one commit."""


@runtime_checkable
class TriesRows(Protocol):
    """A sink that can say of some rows alone that it refuses them."""

    def try_rows(self, rows: DataFrame, commit: Commit) -> None:
        """Raises what ``land`` would raise because of these rows; writes nothing."""
