"""Reads a feed's position from an Iceberg table without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.errors import ResourceMissing
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.iceberg import position_unknown
from lakefeed.ledger.snapshot_summary import FEED, POSITION, RANGES, Commit
from lakefeed.ledger.snapshots import ancestors, summaries

if TYPE_CHECKING:
    from pyiceberg.table import Table


def stored_letters(table: str, feed: str, *, connections: Connections) -> Position | None:
    """Read where the dead letters of a feed end; None without the table, or without letters of this feed.

    Args:
        table: the table of the dead letters.
        feed: the feed's name.
        connections: store and catalogs.

    Raises:
        CheckpointMismatch: the table was rolled back, and its position is unknown.
        ConfigError: its catalog is not declared.
    """
    try:
        return position_in(open_table(table, connections=connections), feed, where=table)
    except ResourceMissing:
        return None


def position_in(table: Table, feed: str, *, where: str) -> Position | None:
    """Where a feed stands in a table, without Java: as ``Ledger.position``.

    Args:
        table: the table.
        feed: the feed's name.
        where: the table's name for messages.

    Raises:
        CheckpointMismatch: the table was rolled back, and its position is unknown.
    """
    text = table.properties.get(f"{POSITION}.{feed}")
    recorded = Position.from_json(text) if text is not None else None
    for snapshot_id, summary in summaries(table):
        if summary.get(FEED) == feed and RANGES in summary:
            if recorded is not None and recorded.snapshot_id == snapshot_id:
                return recorded
            # Another engine has moved the table, and left the property behind.
            commit = Commit.of(snapshot_id, summary)
            return Position(commit.ranges, snapshot_id, is_move=commit.move is not None)
    _, whole = ancestors(table)
    if text is None or (recorded is not None and not whole):
        return recorded
    raise position_unknown(feed, where=where)
