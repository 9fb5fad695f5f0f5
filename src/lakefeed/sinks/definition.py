"""Defines the interfaces of sinks, and of the definitions that open sinks, check them and read their ledgers.

A sink consists of its settings (``lakefeed.config.sinks.SinkConfig``), its definition, and the ``Sink`` that ``open``
returns. The settings name the definition, so reading a pipeline file imports neither Spark nor a database client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from lakefeed.clients.retry import PATIENCE_SECONDS
from lakefeed.config.connections import Connections
from lakefeed.config.problem import Problem as Problem
from lakefeed.config.sinks import SinkConfig
from lakefeed.config.sources import KafkaSource
from lakefeed.config.transform import OutputMode
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.lazy import Column, DataFrame, SparkSession, StructType
from lakefeed.ledger.checkpoint import Claim as Claim
from lakefeed.ledger.feed_position import Position as Position
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.ledger.protocol import Ledger
from lakefeed.ledger.protocol import SinkState as SinkState
from lakefeed.ledger.publication import Publication
from lakefeed.ledger.snapshot_summary import Commit as Commit
from lakefeed.ledger.snapshot_summary import SnapshotProperties as SnapshotProperties
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.decode.unavailable import Unavailable
from lakefeed.records.schema.changes import Entry as Entry
from lakefeed.records.schema.reader import SchemaKeeper
from lakefeed.records.schema.reader import StoredSchema as StoredSchema

Settings = TypeVar("Settings", bound=SinkConfig)

Check = Callable[[], list[Problem]]
"""A request to a server before a run; all checks of a pipeline run concurrently."""

Reread = Callable[[Sequence[OffsetRange]], AbstractContextManager[tuple["DataFrame", BatchOutcomes]]]
"""Reads records again and turns them into rows."""


@dataclass(frozen=True, kw_only=True)
class TableChange:
    """The statements that prepare one table for a feed."""

    table: str
    is_new: bool
    is_laid_out_anew: bool = False
    """Whether new files have other partitions or another order than the existing files."""
    statements: tuple[str, ...] = ()
    """Spark SQL, in the order of execution; empty if the table is ready."""
    notes: tuple[str, ...] = ()
    """Consequences of the statements that users have to know before the start."""


Changes: TypeAlias = tuple[TableChange, ...]
"""First the changes to other tables, last the change to the sink's own table."""


class RowSink(SchemaKeeper, SinkState, Protocol):
    """A sink that writes rows in one commit."""

    def take_fence(self) -> str | None:
        """Make this driver the only one that can commit to the feed; return None if the sink has no fences."""

    def fence_taken(self) -> str | None:
        """Return the feed's newest fence; None if the sink has no fences."""

    def commits(self) -> Iterator[Commit]:
        """Return the feed's commits, newest first; no commits if the sink has no ledger."""

    def has(self, commit: Commit) -> bool:
        """Check that the sink already has this batch."""

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Write a batch in one commit; return the number of rows, or None if the sink's log already has the batch."""

    def take_notes(self) -> tuple[str, ...]:
        """Return notes for users on the last batch; a second call does not return them again."""


class Sink(RowSink, Protocol):
    """A sink for the rows of a feed; it writes a batch in one commit."""

    @property
    def ledger(self) -> Ledger:
        """The ledger of the feed."""

    def location(self) -> str:
        """Return the sink's location for error messages."""

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Commit a move of the feed; raise a ConfigError if the sink cannot be moved."""

    def begin(self, reread: Reread | None) -> None:
        """Prepare for the first batch, once the columns fit; a sink that lags catches up here.

        ``reread`` is None for a query with state: it cannot make rows from only a part of the records.
        """

    def files_of(self, batch_ids: Iterable[int]) -> int | None:
        """Return the number of data files that these batches have written; None if the sink does not count them."""

    def lagging(self) -> Mapping[str, str]:
        """Return the sinks that lag behind the feed, with the reasons."""


class SchemaPlanner(Protocol):
    """Plans how a start would change the columns of a sink."""

    def stored_schema(self) -> StoredSchema | None:
        """Return the reader's schema that the sink has stored."""

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        """Return the changes that ``apply_schema`` would make with the same arguments; raise what it would raise."""


class LedgerTable(Sink, SchemaPlanner, Protocol):
    """An Iceberg table with a feed's rows and its ledger."""

    @property
    def name(self) -> str:
        """The table's name as catalog.namespace.table."""

    ledger: IcebergLedger

    def take_fence(self, suffix: str = "", *, prefix: str = "") -> str:
        """Take the feed's fence; with a suffix, take the separate fence of other work than its batches.

        The fence's name begins with the ``prefix``.
        """


class TablePublisher(Protocol):
    """Publishes rows that a feed has written where readers do not see them yet."""

    report: Callable[..., None]

    def after_batch(self, *, is_new: bool = True, at_end: bool = False) -> str | None:
        """Publish if it is time; return a message for the user, or None."""

    def publish(self, *, dry_run: bool = False) -> Publication:
        """Audit the rows that have landed, and publish them if the audit passes."""

    def discard(self) -> None:
        """Drop the unpublished rows, and move the feed back to where they began."""


class RealTimeSink(Sink, Protocol):
    """A sink whose records Spark's own writer writes one by one."""

    @property
    def options(self) -> dict[str, str]:
        """Options of Spark's writer."""

    def records(self, rows: DataFrame, *, batch: Column) -> DataFrame:
        """Return a stream's rows as the records that Spark writes; ``batch`` holds the query and the batch of a row."""


class StoredRows(Protocol):
    """The rows of a feed's table, which are read without Spark."""

    @property
    def columns(self) -> set[str]:
        """The table's columns."""

    @property
    def where(self) -> str:
        """The table's location for error messages."""

    def read(self, columns: Sequence[str]) -> Any:
        """Return columns as an Arrow record batch reader."""


@dataclass(frozen=True, kw_only=True)
class CommitHistory:
    """The part of a sink's ledger for ``lakefeed verify``, as it was at one moment."""

    commits: tuple[Commit, ...]
    """The feed's commits, oldest first."""
    fence: str | None
    rows: StoredRows
    has_keys: bool = False
    """Whether the table has one row for each key; then ``count_rows`` counts the rows."""
    marks_deletes: bool = False
    """Whether deleted rows stay in the table, marked as deleted."""
    count_rows: Callable[[], int] = lambda: 0


@runtime_checkable
class TriesRows(Protocol):
    """A sink that can say whether it would refuse some of a batch's rows."""

    def try_rows(self, rows: DataFrame, commit: Commit) -> None:
        """Raise the error that ``land`` would raise for these rows; commit nothing."""


@dataclass(frozen=True, kw_only=True)
class SinkContext:
    """The pipeline's settings for a sink; ``folder`` is the folder of the pipeline file."""

    feed: str
    place: str
    """The sink's place in the pipeline file, with its kind, such as ``sink.iceberg``."""
    connections: Connections
    output_mode: OutputMode = "append"
    evolves: bool = True
    """Whether the sink's columns are changed to match the rows' columns."""
    can_lag: bool = False
    """Whether the feed continues while the sink is unavailable."""
    source: KafkaSource | None = None
    """The Kafka source; None for another source."""
    folder: Path | None = None
    is_transformed: bool = True
    """Whether a transform or an envelope makes the rows' columns; otherwise they are the decoded records' fields."""

    unavailable: Unavailable | None = None
    """The placeholder for values that an upsert leaves unchanged in the table."""

    @property
    def patience(self) -> float:
        """Seconds to wait for an unavailable server; 0 if the feed continues without it."""
        return 0 if self.can_lag else PATIENCE_SECONDS

    @property
    def groups(self) -> bool:
        """Check that rows are the newest states of groups, as a query with state produces them."""
        return self.output_mode == "update"


class SinkDefinition(ABC, Generic[Settings]):
    """The code of one kind of sink. Override ``open``, and other methods that the sink supports."""

    def __init__(self, settings: Settings, context: SinkContext) -> None:
        self.settings = settings
        self.context = context

    @abstractmethod
    def open(self, spark: SparkSession, claim: Claim) -> Sink:
        """Open the sink for the batches of a feed; raise a ConfigError if it cannot serve this pipeline.

        ``claim`` is the feed's checkpoint; a sink without a ledger stores the schema there.
        """

    def open_table(self, spark: SparkSession) -> LedgerTable:
        """Open the Iceberg table with the ledger, for a backfill, a replay or a rewind."""
        raise ConfigError("the ledger of this sink is not in an Iceberg table", where=self.context.place)

    def open_real_time(self, spark: SparkSession, claim: Claim) -> RealTimeSink:
        """Open the sink for single records."""
        raise ConfigError("this sink takes whole batches only", where=self.context.place, hint="trigger: 1 second")

    def publisher(self, spark: SparkSession) -> TablePublisher | None:
        """Return the publisher of the feed's rows; None if readers see rows right after their commit."""
        return None

    def state(self) -> SinkState:
        """Return the feed's position in the sink, read without Spark."""
        return StoredState()

    def history(self) -> AbstractContextManager[CommitHistory]:
        """Return a context with all commits of the feed at one moment, for ``lakefeed verify``; without Spark.

        A sink with a ``snapshot_table`` does not need this method.
        """
        raise ConfigError("this sink does not keep its commits", where=self.context.place)

    def check_settings(self) -> Iterator[Problem]:
        """Find mistakes that the settings alone cannot show, such as a class that does not exist; ask no server."""
        return iter(())

    def check_rows(self, rows: DataFrame, *, stateful: bool) -> Iterator[Problem]:
        """Find contradictions between settings and rows before anything runs; ``rows`` is an unstarted stream."""
        return iter(())

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        """Return requests that show whether a run can start; they need no Spark.

        ``rows`` returns the rows' columns; None if only Spark can determine them.
        """
        return []

    def schema_planner(self, spark: SparkSession, noted: str | None) -> SchemaPlanner:
        """Return a planner of changes to the sink's columns, for ``lakefeed plan``; execute nothing.

        ``noted`` is the reader's schema that the checkpoint location stores.
        """
        return NotedSchema(noted, lambda rows: self.require_columns(spark, rows))

    def encoder_refusal(self, spark: SparkSession, rows: Callable[[], StructType | None]) -> str | None:
        """Return the reason why lakefeed's encoder of Parquet files does not write the rows; None if it writes them.

        ``rows`` returns the rows' columns, for files and for a table that does not exist yet.
        """
        return "lakefeed's is for Parquet files"

    def require_columns(self, spark: SparkSession, rows: StructType) -> None:
        """Raise a ConfigError with the first column that the settings name and the rows lack."""


@dataclass
class StoredState:
    """The position of a feed in its sink, read on request: offsets in a ledger, or the newest batch in a log."""

    keeps_ledger: bool = False
    keeps_log: bool = False
    position: Callable[[], Position | None] = lambda: None
    logged: Callable[[], int | None] = lambda: None


@dataclass(frozen=True)
class NotedSchema:
    """Plans no changes, for a sink whose reader's schema is in the checkpoint location; ``check`` refuses rows."""

    noted: str | None
    check: Callable[[StructType], None]

    def stored_schema(self) -> StoredSchema | None:
        return None if self.noted is None else StoredSchema.of_json(self.noted)

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        """Return no changes; raise what the start would raise."""
        self.check(rows)
        return ()


def checked(key: str, ask: Callable[[], object]) -> Check:
    """Return a check that calls ``ask`` and turns its error into a problem of the setting ``key``."""

    def check() -> list[Problem]:
        try:
            ask()
        except LakefeedError as error:
            return [Problem.of(error, key=key)]
        return []

    return check
