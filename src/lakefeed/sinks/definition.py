"""Declares the code of one kind of sink: how it opens, what is checked before a run, and how its ledger is read.

A sink is its settings (``lakefeed.config.sinks.SinkConfig``) and its definition. The settings name the definition, so
that reading a pipeline file imports neither Spark nor a database client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from lakefeed.clients.retry import PATIENCE_SECONDS
from lakefeed.config.connections import Connections
from lakefeed.config.problem import Problem
from lakefeed.config.sinks import SinkConfig
from lakefeed.config.sources import KafkaSource
from lakefeed.config.transform import OutputMode
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import SinkState
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.protocol import CommitHistory, LedgerTable, RealTimeSink, SchemaPlanner, Sink, TableChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Settings = TypeVar("Settings", bound=SinkConfig)

Check = Callable[[], list[Problem]]
"""One request to a server before a run; all checks of a pipeline run at once."""


@dataclass(frozen=True, kw_only=True)
class SinkContext:
    """What a sink knows of its pipeline.

    Attributes:
        place: the sink's place in the pipeline file with its name, such as ``sink.iceberg``.
        evolves: whether columns follow the rows'.
        can_lag: whether the feed continues while the sink is unavailable.
        source: the Kafka source; None for another source.
        folder: the folder of the pipeline file.
    """

    feed: str
    place: str
    connections: Connections
    output_mode: OutputMode = "append"
    evolves: bool = True
    can_lag: bool = False
    source: KafkaSource | None = None
    folder: Path | None = None

    @property
    def patience(self) -> float:
        """Seconds to wait for an unavailable server: none where the feed continues without it."""
        return 0 if self.can_lag else PATIENCE_SECONDS

    @property
    def groups(self) -> bool:
        """Whether each row is the newest of its group, as a query with state makes them."""
        return self.output_mode == "update"


class SinkDefinition(ABC, Generic[Settings]):
    """The code of one kind of sink. Override ``open``, and the other methods that the sink can serve."""

    def __init__(self, settings: Settings, context: SinkContext) -> None:
        self.settings = settings
        self.context = context

    @abstractmethod
    def open(self, spark: SparkSession, claim: Claim) -> Sink:
        """Open the sink for the batches of a feed.

        Args:
            claim: the feed's checkpoint, where a sink without a ledger keeps the schema.

        Raises:
            ConfigError: the sink cannot serve this pipeline.
        """

    def open_table(self, spark: SparkSession) -> LedgerTable:
        """Open the Iceberg table that holds the ledger, for a backfill, a replay or a rewind.

        Raises:
            ConfigError: the ledger is elsewhere.
        """
        raise ConfigError("the ledger of this sink is not in an Iceberg table", where=self.context.place)

    def open_real_time(self, spark: SparkSession, claim: Claim) -> RealTimeSink:
        """Open the sink for records one by one.

        Raises:
            ConfigError: it takes whole batches only.
        """
        raise ConfigError("this sink takes whole batches only", where=self.context.place, hint="trigger: 1 second")

    def state(self) -> SinkState:
        """Return where the feed stands in the sink, read without Spark."""
        return StoredState()

    def history(self) -> AbstractContextManager[CommitHistory]:
        """Open all commits of the feed at one moment, for ``lakefeed verify``; without Spark.

        A sink with a ``snapshot_table`` does not need it.

        Raises:
            ConfigError: the sink does not keep them.
        """
        raise ConfigError("this sink does not keep its commits", where=self.context.place)

    def check_settings(self) -> Iterator[Problem]:
        """Find mistakes that the settings alone cannot show, such as a class that does not exist; asks no server."""
        return iter(())

    def check_rows(self, rows: DataFrame, *, stateful: bool) -> Iterator[Problem]:
        """Find mistakes between the settings and the rows, before anything runs.

        Args:
            rows: an unstarted stream with the rows' columns.
            stateful: whether the query keeps state.
        """
        return iter(())

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        """Return the requests that show whether a run can begin, without Spark.

        Args:
            rows: returns the rows' columns; None where only Spark knows them.
        """
        return []

    def schema_planner(self, spark: SparkSession, noted: str | None) -> SchemaPlanner:
        """Return what plans the changes of the sink's columns for ``lakefeed plan``; executes nothing.

        Args:
            noted: the reader's schema in the checkpoint location.
        """
        return NotedSchema(noted, lambda rows: self.require_columns(spark, rows))

    def require_columns(self, spark: SparkSession, rows: StructType) -> None:
        """Refuse rows that lack a column which the settings name.

        Raises:
            ConfigError: naming the first that is missing.
        """


@dataclass
class StoredState:
    """Where a feed stands in its sink, read when it is requested.

    Attributes:
        keeps_ledger: whether the sink knows which offsets it holds.
        keeps_log: whether it keeps no ledger, but a log of its batches.
        read_position: reads where the feed stands.
        read_log: reads the newest batch in the log.
    """

    keeps_ledger: bool = False
    keeps_log: bool = False
    read_position: Callable[[], Position | None] = lambda: None
    read_log: Callable[[], int | None] = lambda: None

    def position(self) -> Position | None:
        return self.read_position()

    def logged(self) -> int | None:
        return self.read_log()


@dataclass(frozen=True)
class NotedSchema:
    """Plans no change, for a sink whose reader's schema is noted in the checkpoint location.

    Attributes:
        check: refuses rows that do not fit.
    """

    noted: str | None
    check: Callable[[StructType], None]

    def stored_schema(self) -> StoredSchema | None:
        return None if self.noted is None else StoredSchema.of_json(self.noted)

    def changes(
        self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()
    ) -> tuple[TableChange, ...]:
        """Return no change; raise what the start would raise."""
        self.check(rows)
        return ()


def checked(key: str, ask: Callable[[], object]) -> Check:
    """Return a check whose errors become problems of a setting.

    Args:
        ask: makes the request.
    """

    def check() -> list[Problem]:
        try:
            ask()
        except LakefeedError as error:
            return [Problem.of(error, key=key)]
        return []

    return check
