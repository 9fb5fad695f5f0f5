"""Defines the interfaces of sinks, and of the definitions that open sinks, check them and read their ledgers.

A sink consists of its settings (``lakefeed.config.sinks.SinkConfig``), its definition, and the ``Sink`` that ``open``
returns. The settings only name the definition, so reading a pipeline file imports neither Spark nor a database client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from lakefeed.clients.retry import PATIENCE_SECONDS
from lakefeed.config.blocks import Block
from lakefeed.config.connections import Connections
from lakefeed.config.problem import Problem as Problem
from lakefeed.config.sinks import SinkConfig
from lakefeed.config.sources import KafkaSource
from lakefeed.config.transform import OutputMode
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.lazy import DataFrame, SparkSession, StructType
from lakefeed.ledger.checkpoint import Claim as Claim
from lakefeed.ledger.feed_position import Position as Position
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.ledger.protocol import Ledger
from lakefeed.ledger.protocol import SinkState as SinkState
from lakefeed.ledger.publication import Publication
from lakefeed.ledger.snapshot_summary import Commit as Commit
from lakefeed.ledger.snapshot_summary import SnapshotProperties as SnapshotProperties
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode.unavailable import Unavailable
from lakefeed.records.decode.verdict import SinkRule
from lakefeed.records.schema.changes import Entry as Entry
from lakefeed.records.schema.reader import SchemaKeeper
from lakefeed.records.schema.reader import StoredSchema as StoredSchema

Settings = TypeVar("Settings", bound=SinkConfig)

Check = Callable[[], list[Problem]]
"""A function that asks a server before a run, and returns problems; a pipeline's checks run concurrently."""

Reread = Callable[[Sequence[OffsetRange]], AbstractContextManager[tuple["DataFrame", BatchOutcomes]]]
"""A function that reads offset ranges again and returns their rows."""


@dataclass(frozen=True, kw_only=True)
class TableChange:
    """The statements that prepare one table for a feed.

    Attributes:
        is_laid_out_anew: whether new files get other partitions or another order than existing files have.
        statements: Spark SQL, in the order of execution; empty if the table is ready.
        notes: the consequences that users have to know before the start.
    """

    table: str
    is_new: bool
    is_laid_out_anew: bool = False
    statements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


Changes: TypeAlias = tuple[TableChange, ...]
"""The changes that a start would make; the sink's own table comes last."""


class RowSink(SchemaKeeper, SinkState, Protocol):
    """A sink that writes rows in one commit."""

    def take_fence(self) -> str | None:
        """Make this driver the only one that can commit; return its fence, or None if the sink has no fences."""

    def fence_taken(self) -> str | None:
        """Return the feed's newest fence; None if the sink has no fences."""

    def commits(self) -> Iterator[Commit]:
        """Return the feed's commits, newest first; no commits if the sink has no ledger."""

    def has(self, commit: Commit) -> bool:
        """Return whether the sink has this batch."""

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Write a batch in one commit; return the number of rows, or None if the sink's log already has the batch."""

    def take_notes(self) -> tuple[str, ...]:
        """Return the messages for users since the last call."""


class Sink(RowSink, Protocol):
    @property
    def ledger(self) -> Ledger:
        """The ledger of the feed."""

    def location(self) -> str:
        """Return the sink's location for error messages."""

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Commit a move of the feed; raise a ConfigError if the sink does not support moves."""

    def begin(self, reread: Reread | None) -> None:
        """Prepare for the first batch, after the columns have been changed; sinks that lag catch up now.

        ``reread`` is None for a query with state, which cannot build the rows of some records alone.
        """

    def files_of(self, batch_ids: Iterable[int]) -> int | None:
        """Return the number of data files that these batches have written; None if the sink does not count them."""

    def lagging(self) -> Mapping[str, str]:
        """Return the sinks that lag behind the feed: by name, the reason."""


class SchemaPlanner(Protocol):
    """Plans how a start would change the columns of a sink."""

    def stored_schema(self) -> StoredSchema | None:
        """Return the reader's schema that the sink has stored."""

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        """Return the changes that ``apply_schema`` would make with these arguments; raise the same errors."""


class LedgerTable(Sink, SchemaPlanner, Protocol):
    """An Iceberg table with a feed's rows and its ledger."""

    @property
    def name(self) -> str:
        """The table's name as catalog.namespace.table."""

    ledger: IcebergLedger

    def take_fence(self, suffix: str = "", *, prefix: str = "") -> str:
        """Take the feed's fence; with a suffix, take the fence of its backfills or replays. The fence's name begins
        with ``prefix``.
        """


class TablePublisher(Protocol):
    """Publishes the rows that a feed has written to a branch of its table."""

    report: Callable[..., None]

    def after_batch(self, *, is_new: bool = True, at_end: bool = False) -> str | None:
        """Publish if a publication is due; return a message for the user, or None."""

    def publish(self, *, dry_run: bool = False) -> Publication:
        """Audit the table as it is with the unpublished rows; if the audit passes, publish them."""

    def discard(self) -> None:
        """Drop the unpublished rows, and move the feed back to the first record of these rows."""


class RealTimeSink(Sink, Protocol):
    """A sink to which Spark's own writer writes records one by one."""

    @property
    def options(self) -> dict[str, str]:
        """Options of Spark's writer."""

    def records(self, rows: DataFrame) -> DataFrame:
        """Return a stream's rows as the records that Spark writes."""


class StoredRows(Protocol):
    """The rows of a feed's table, which are read without Spark; ``where`` is the table's location for messages."""

    @property
    def columns(self) -> set[str]: ...

    @property
    def where(self) -> str: ...

    def read(self, columns: Sequence[str]) -> Any:
        """Return columns as an Arrow record batch reader."""


@dataclass(frozen=True, kw_only=True)
class CommitHistory:
    """The part of a sink's ledger that ``lakefeed verify`` reads, at one moment.

    Attributes:
        commits: the feed's commits, oldest first.
        is_whole: whether the sink still has the feed's first commit.
        has_keys: whether the table has one row for each key; if so, ``count_rows`` counts the rows.
        marks_deletes: whether deleted rows stay in the table, marked as deleted.
    """

    commits: tuple[Commit, ...]
    fence: str | None
    rows: StoredRows
    is_whole: bool = True
    has_keys: bool = False
    marks_deletes: bool = False
    count_rows: Callable[[], int] = lambda: 0


@runtime_checkable
class TriesRows(Protocol):
    """A sink that can try a batch's rows without a commit."""

    def try_rows(self, rows: DataFrame, commit: Commit) -> None:
        """Raise the error that ``land`` would raise for these rows; commit nothing."""


@runtime_checkable
class RoutesRows(Protocol):
    """A sink that lands each row in the table that a field names. ``refusal`` finds values that name no table."""

    refusal: SinkRule

    def interrupted_batch(self) -> tuple[OffsetRanges, int] | None:
        """Return ranges and number of a batch that only some of the tables have; None if there is no such batch."""


@dataclass(frozen=True, kw_only=True)
class SinkContext:
    """The pipeline's settings for a sink.

    Attributes:
        place: the sink's dotted path in the pipeline file, with its kind, such as ``sink.iceberg``.
        evolves: whether the sink's columns are changed to match the rows' columns.
        can_lag: whether the feed continues without the sink while the sink is unavailable.
        source: the Kafka source; None for another source.
        folder: the folder of the pipeline file.
        is_transformed: whether a transform or an envelope makes the rows' columns; otherwise the columns are the
            decoded records' fields.
        unavailable: the placeholder for values that an upsert leaves unchanged in the table.
        blocks: the blocks of packages, for the feed's own sink.
    """

    feed: str
    place: str
    connections: Connections
    output_mode: OutputMode = "append"
    evolves: bool = True
    can_lag: bool = False
    source: KafkaSource | None = None
    folder: Path | None = None
    is_transformed: bool = True
    unavailable: Unavailable | None = None
    blocks: tuple[Block, ...] = ()

    @property
    def patience(self) -> float:
        """How many seconds to wait for an unavailable server; 0 if the feed continues without the sink."""
        return 0 if self.can_lag else PATIENCE_SECONDS

    @property
    def groups(self) -> bool:
        """Return whether a query with state makes the rows; if so, each row is the newest state of a group."""
        return self.output_mode == "update"


class SinkDefinition(ABC, Generic[Settings]):
    """The code of one kind of sink. A subclass overrides ``open``, and the methods for what the sink supports."""

    def __init__(self, settings: Settings, context: SinkContext) -> None:
        self.settings = settings
        self.context = context

    @abstractmethod
    def open(self, spark: SparkSession, claim: Claim) -> Sink:
        """Open the sink for the batches of a feed; raise a ConfigError if it does not fit this pipeline.

        ``claim`` is the feed's checkpoint; a sink without a ledger stores the schema there.
        """

    def open_table(self, spark: SparkSession) -> LedgerTable:
        """Open the Iceberg table with the ledger, for a backfill, a replay or a rewind."""
        raise ConfigError(
            "the ledger of this sink is not in an Iceberg table",
            where=self.context.place,
            hint="use sink.iceberg for this operation",
        )

    def open_real_time(self, spark: SparkSession, claim: Claim) -> RealTimeSink:
        """Open the sink for records without batches."""
        raise ConfigError(
            "this sink writes only whole batches", where=self.context.place, hint="write trigger: 1 second"
        )

    def publisher(self, spark: SparkSession) -> TablePublisher | None:
        """Return the publisher of the feed's rows; None if readers see rows right after their commit."""
        return None

    def state(self) -> SinkState:
        """Return the feed's position in the sink, read without Spark."""
        return StoredState()

    def history(self) -> AbstractContextManager[CommitHistory]:
        """Return a context manager with all commits of the feed at one moment, for ``lakefeed verify``, without Spark.

        A sink with a ``snapshot_table`` does not need this method.
        """
        raise ConfigError(
            "this sink does not store its commits",
            where=self.context.place,
            hint="verify needs a sink with a ledger, such as sink.iceberg",
        )

    def check_settings(self) -> Iterator[Problem]:
        """Find mistakes in settings that refer to something outside the file, such as a class; ask no server."""
        return iter(())

    def check_rows(self, rows: DataFrame, *, stateful: bool) -> Iterator[Problem]:
        """Find contradictions between settings and rows before a query starts; ``rows`` is a streaming DataFrame."""
        return iter(())

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        """Return checks, which need no Spark, of whether a run can start.

        ``rows`` returns the rows' columns; None if only Spark can determine them.
        """
        return []

    def schema_planner(self, spark: SparkSession, noted: str | None) -> SchemaPlanner:
        """Return a planner of changes to the sink's columns, for ``lakefeed plan``, without executing any change.

        ``noted`` is the reader's schema that the checkpoint location stores.
        """
        return NotedSchema(noted, lambda rows: self.require_columns(spark, rows))

    def encoder_refusal(self, spark: SparkSession, rows: Callable[[], StructType | None]) -> str | None:
        """Return why lakefeed's encoder of Parquet files cannot write the rows; None if it can write them.

        ``rows`` returns the rows' columns, for files and for a table that does not exist yet.
        """
        return "lakefeed's encoder writes only Parquet files"

    def lands_changes(self, spark: SparkSession, rows: Callable[[], StructType | None]) -> str | None:
        """Describe how the sink lands changes of keyed rows; None if the sink has only one method.

        ``rows`` returns the rows' columns, for a table that does not exist yet.
        """
        return None

    def require_columns(self, spark: SparkSession, rows: StructType) -> None:
        """Raise a ConfigError if the rows lack a column that the settings name."""


@dataclass
class StoredState:
    """The position of a feed in its sink, read on request: offsets from a ledger, or the newest batch from a log."""

    keeps_ledger: bool = False
    keeps_log: bool = False
    position: Callable[[], Position | None] = lambda: None
    logged: Callable[[], int | None] = lambda: None


@dataclass(frozen=True)
class NotedSchema:
    """Plans no changes, for a sink without a schema of its own; ``noted`` is the schema in the checkpoint location.

    ``check`` raises an error for rows that the sink would refuse.
    """

    noted: str | None
    check: Callable[[StructType], None]

    def stored_schema(self) -> StoredSchema | None:
        return None if self.noted is None else StoredSchema.of_json(self.noted)

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        self.check(rows)
        return ()


def checked(key: str, ask: Callable[[], object]) -> Check:
    """Return a check that calls ``ask`` and returns its error as a problem of the setting ``key``."""

    def check() -> list[Problem]:
        try:
            ask()
        except LakefeedError as error:
            return [Problem.of(error, key=key)]
        return []

    return check
