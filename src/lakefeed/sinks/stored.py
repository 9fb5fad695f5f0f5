"""What a sink says of a feed's position, read without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ResourceMissing
from lakefeed.ledger.checkpoint_store import StoredFiles
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.iceberg import position_unknown
from lakefeed.ledger.protocol import SinkState
from lakefeed.ledger.snapshot_summary import FEED, POSITION, RANGES, Commit
from lakefeed.ledger.snapshots import ancestors, summaries
from lakefeed.sinks.elasticsearch.layout import Layout
from lakefeed.sinks.elasticsearch.ledger import ElasticsearchLedger
from lakefeed.sinks.elasticsearch.server import Server
from lakefeed.sinks.jdbc.ledger import JdbcLedger
from lakefeed.sinks.jdbc.session import PythonDatabase
from lakefeed.sinks.python import class_of, keeps_ledger, last_position

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass
class _Stored:
    keeps_ledger: bool
    keeps_log: bool
    read_position: Callable[[], Position | None] = lambda: None
    read_log: Callable[[], int | None] = lambda: None

    def position(self) -> Position | None:
        return self.read_position()

    def logged(self) -> int | None:
        return self.read_log()


def stored_sink(config: PipelineConfig, connections: Connections, *, folder: Path | None = None) -> SinkState:
    """The feed's own sink.

    Args:
        config: the pipeline.
        connections: store and catalogs.
        folder: where the pipeline file is; a sink in Python is looked for there too.
    """
    sink = config.sink
    if (iceberg := sink.iceberg) is not None:

        def of_table() -> Position | None:
            try:
                return position_in(open_table(iceberg.table, connections=connections), config.name, where=iceberg.table)
            except ResourceMissing:
                return None

        return _Stored(keeps_ledger=True, keeps_log=False, read_position=of_table)
    if (jdbc := sink.jdbc) is not None:

        def of_database() -> Position | None:
            database = PythonDatabase(jdbc)
            with database.session() as session:
                return JdbcLedger(database, jdbc, config.name).position(session)

        return _Stored(keeps_ledger=True, keeps_log=False, read_position=of_database)
    if (search := sink.elasticsearch) is not None:

        def of_index() -> Position | None:
            server = Server(search)
            if Layout(server, search).described() is None:
                return None
            return ElasticsearchLedger(server, search, config.name).position()

        return _Stored(keeps_ledger=True, keeps_log=False, read_position=of_index)
    if (python := sink.python) is not None:
        own = class_of(python, output_mode=config.output_mode, folder=folder)
        return _Stored(keeps_ledger=keeps_ledger(own), keeps_log=False, read_position=lambda: last_position(own))
    if (path := sink.logged_path) is not None:
        return _Stored(keeps_ledger=False, keeps_log=True, read_log=lambda: _logged(path, connections))
    return _Stored(keeps_ledger=False, keeps_log=False)


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


def _logged(path: str, connections: Connections) -> int | None:
    names = StoredFiles(f"{path}/_spark_metadata", s3=connections.s3).names()
    batches = [int(stem) for each in names if (stem := each.removesuffix(".compact")).isdigit()]
    return max(batches, default=None)
