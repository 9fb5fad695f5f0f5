"""Declares what reads of a sink where its feed stands, with Spark or without."""

from __future__ import annotations

from typing import Protocol

from lakefeed.ledger.feed_position import Position


class SinkState(Protocol):
    """What a start has to know of a sink, read with Spark or without."""

    keeps_ledger: bool
    """Whether it says which offsets it holds."""

    keeps_log: bool
    """Whether it keeps no ledger, but a log of the batches that it has."""

    def position(self) -> Position | None:
        """Where the feed stands; None if the sink has nothing of it, or keeps no ledger."""

    def logged(self) -> int | None:
        """The newest batch that a log by batch ids has; None without any, or without such a log."""
