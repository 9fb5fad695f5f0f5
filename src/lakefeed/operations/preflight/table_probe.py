"""Whether the tables that a pipeline names are, where they exist, for what it uses them, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.names import catalog_of
from lakefeed.config.problem import Problem
from lakefeed.errors import ConfigError, LakefeedError

Require = Callable[[str, list[str]], None]


def problems(config: PipelineConfig, connections: Connections) -> Iterator[Problem]:
    """Tables of rows that hold dead letters, and places for dead letters that hold something else.

    A table that cannot be opened is left to other checks, and to the start of the run.
    """
    for key, table, require in _tables(config):
        catalog = connections.catalogs.get(catalog_of(table))
        # Opening a SQLite catalog creates its file; a check changes nothing.
        if catalog is None or (catalog.sqlite_file is not None and not catalog.sqlite_file.exists()):
            continue
        columns = _columns(table, connections)
        try:
            if columns is not None:
                require(table, columns)
        except ConfigError as error:
            yield Problem.of(error, key=key)


def _tables(config: PipelineConfig) -> Iterator[tuple[str, str, Require]]:
    from lakefeed.config.topic_tables import config_of
    from lakefeed.sinks.table_kinds import require_dead_letters, require_rows

    parts = [config]
    if config.has_many_tables:
        named = [*(config.kafka.topics or ()), *(config.tables.topics if config.tables else ())]
        parts = [config_of(config, topic) for topic in dict.fromkeys(named)]
    for part in parts:
        for place, block in part.sink_blocks:
            for option, table in block.chosen.snapshot_tables.items():
                yield f"{place}.{block.kind}.{option}", table, require_rows
        if part.dead_letters is not None and part.dead_letters.table is not None:
            yield "dead_letters.table", part.dead_letters.table, require_dead_letters


def _columns(table: str, connections: Connections) -> list[str] | None:
    """The columns of a table; None if it does not exist, or cannot be opened."""
    from lakefeed.clients.iceberg.reader import open_table

    try:
        return [each.name for each in open_table(table, connections=connections).schema().fields]
    except (LakefeedError, OSError):
        return None
