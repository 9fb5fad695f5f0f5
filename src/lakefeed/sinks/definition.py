"""Declares a kind of sink: how it opens, what is checked before a run, how its ledger is read, and its sinks' methods.

A sink is its settings (``lakefeed.config.sinks.SinkConfig``), its definition, and the object that ``open`` returns, a
``Sink``. The settings name the definition, so that reading a pipeline file imports neither Spark nor a database client.
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
"""One request to a server before a run; all checks of a pipeline run at once."""

Reread = Callable[[Sequence[OffsetRange]], AbstractContextManager[tuple["DataFrame", BatchOutcomes]]]
"""Reads records again, and makes rows of them."""


@dataclass(frozen=True, kw_only=True)
class TableChange:
    """The statements that make one table ready for a feed."""

    table: str
    is_new: bool
    is_laid_out_anew: bool = False
    """Whether new files have other partitions or another order than those that are there."""
    statements: tuple[str, ...] = ()
    """In Spark SQL, in their order; none if the table is ready as it is."""
    notes: tuple[str, ...] = ()
    """Consequences of the statements that users have to know before."""


Changes: TypeAlias = tuple[TableChange, ...]
"""To tables beside the sink's own first, to that last."""


class RowSink(SchemaKeeper, SinkState, Protocol):
    """A place for rows, in one commit."""

    def take_fence(self) -> str | None:
        """Make this driver the only one that can commit to the feed; None if the sink knows no fences."""

    def fence_taken(self) -> str | None:
        """Return the feed's fence that was taken last; None if the sink knows no fences."""

    def commits(self) -> Iterator[Commit]:
        """Return the feed's commits, newest first; none if the sink keeps no ledger."""

    def has(self, commit: Commit) -> bool:
        """Check that the sink has this batch already."""

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Write a batch in one commit; return how many rows it wrote, or None if its log has the batch already."""

    def take_notes(self) -> tuple[str, ...]:
        """Return what users should know of the last batch; a note is returned once."""


class Sink(RowSink, Protocol):
    """A place for the rows of a feed, one batch in one commit."""

    @property
    def ledger(self) -> Ledger:
        """The ledger of the feed."""

    def location(self) -> str:
        """Return the place that errors name."""

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Commit a move of the feed; a ConfigError if the sink cannot be moved."""

    def begin(self, reread: Reread | None) -> None:
        """Prepare for the first batch, after the columns fit; a sink that lags catches up.

        A query with state has no ``reread``: of some records alone it can make nothing.
        """

    def files_of(self, batch_ids: Iterable[int]) -> int | None:
        """Return how many data files these batches have written; None if the sink does not count them."""

    def lagging(self) -> Mapping[str, str]:
        """Return the sinks that are behind the feed, and why."""


class SchemaPlanner(Protocol):
    """Plans how a start would change the columns of a sink."""

    def stored_schema(self) -> StoredSchema | None:
        """Return the reader's schema that the sink remembers."""

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        """Return what ``apply_schema`` would do with the same arguments; raise what that would raise."""


class LedgerTable(Sink, SchemaPlanner, Protocol):
    """An Iceberg table with a feed's rows and its ledger."""

    @property
    def name(self) -> str:
        """catalog.namespace.table"""

    ledger: IcebergLedger

    def take_fence(self, suffix: str = "", *, prefix: str = "") -> str:
        """Take the fence of the feed, or with a suffix that of work which is fenced apart from its batches.

        The name in the fence begins with the ``prefix``.
        """


class TablePublisher(Protocol):
    """Publishes the rows that a feed has landed where readers do not see them yet."""

    report: Callable[..., None]

    def after_batch(self, *, is_new: bool = True, at_end: bool = False) -> str | None:
        """Publish if it is time; returns a message for the user, if there is one."""

    def publish(self, *, dry_run: bool = False) -> Publication:
        """Audit what has landed, and publish it if the audit passes."""

    def discard(self) -> None:
        """Drop what is not published, and move the feed back with it."""


class RealTimeSink(Sink, Protocol):
    """A sink that takes each record by itself, by a writer of Spark."""

    @property
    def options(self) -> dict[str, str]:
        """Options of Spark's writer."""

    def records(self, rows: DataFrame, *, batch: Column) -> DataFrame:
        """Return the rows of a stream as the records that Spark writes; ``batch`` is the query and a row's batch."""


class StoredRows(Protocol):
    """The rows of a feed's table, read without Spark."""

    @property
    def columns(self) -> set[str]:
        """The table's columns."""

    @property
    def where(self) -> str:
        """The place that errors name."""

    def read(self, columns: Sequence[str]) -> Any:
        """Read columns as an Arrow record batch reader."""


@dataclass(frozen=True, kw_only=True)
class CommitHistory:
    """The part of a sink's ledger that ``lakefeed verify`` reads at one moment."""

    commits: tuple[Commit, ...]
    """Of the feed, oldest first."""
    fence: str | None
    rows: StoredRows
    has_keys: bool = False
    """Whether the table has one row for each key; ``count_rows`` counts these."""
    marks_deletes: bool = False
    """Whether rows are marked as deleted and kept."""
    count_rows: Callable[[], int] = lambda: 0


@runtime_checkable
class TriesRows(Protocol):
    """A sink that can say of some rows alone that it refuses them."""

    def try_rows(self, rows: DataFrame, commit: Commit) -> None:
        """Raise what ``land`` would raise because of these rows; commit nothing."""


@dataclass(frozen=True, kw_only=True)
class SinkContext:
    """The pipeline's settings that a sink may use; ``folder`` is that of the pipeline file."""

    feed: str
    place: str
    """The sink's place in the pipeline file with its name, such as ``sink.iceberg``."""
    connections: Connections
    output_mode: OutputMode = "append"
    evolves: bool = True
    """Whether columns follow the rows'."""
    can_lag: bool = False
    """Whether the feed continues while the sink is unavailable."""
    source: KafkaSource | None = None
    """None for a source other than Kafka."""
    folder: Path | None = None
    is_transformed: bool = True
    """Whether the rows' columns are made by a transform or an envelope, and are not the decoded records' fields."""

    unavailable: Unavailable | None = None
    """The placeholder of values that an upsert leaves as they are stored."""

    @property
    def patience(self) -> float:
        """Seconds to wait for an unavailable server: none where the feed continues without it."""
        return 0 if self.can_lag else PATIENCE_SECONDS

    @property
    def groups(self) -> bool:
        """Check that each row is the newest of its group, as a query with state makes them."""
        return self.output_mode == "update"


class SinkDefinition(ABC, Generic[Settings]):
    """The code of one kind of sink. Override ``open``, and the other methods that the sink can serve."""

    def __init__(self, settings: Settings, context: SinkContext) -> None:
        self.settings = settings
        self.context = context

    @abstractmethod
    def open(self, spark: SparkSession, claim: Claim) -> Sink:
        """Open the sink for the batches of a feed; a ConfigError if it cannot serve this pipeline.

        In ``claim``, the feed's checkpoint, a sink without a ledger keeps the schema.
        """

    def open_table(self, spark: SparkSession) -> LedgerTable:
        """Open the Iceberg table that holds the ledger, for a backfill, a replay or a rewind."""
        raise ConfigError("the ledger of this sink is not in an Iceberg table", where=self.context.place)

    def open_real_time(self, spark: SparkSession, claim: Claim) -> RealTimeSink:
        """Open the sink for records one by one."""
        raise ConfigError("this sink takes whole batches only", where=self.context.place, hint="trigger: 1 second")

    def publisher(self, spark: SparkSession) -> TablePublisher | None:
        """Return what publishes the rows of the feed; None if readers see them at once."""
        return None

    def state(self) -> SinkState:
        """Return where the feed stands in the sink, read without Spark."""
        return StoredState()

    def history(self) -> AbstractContextManager[CommitHistory]:
        """Open all commits of the feed at one moment, for ``lakefeed verify``; without Spark.

        A sink with a ``snapshot_table`` does not need it.
        """
        raise ConfigError("this sink does not keep its commits", where=self.context.place)

    def check_settings(self) -> Iterator[Problem]:
        """Find mistakes that the settings alone cannot show, such as a class that does not exist; asks no server."""
        return iter(())

    def check_rows(self, rows: DataFrame, *, stateful: bool) -> Iterator[Problem]:
        """Find mistakes between the settings and the rows, an unstarted stream, before anything runs."""
        return iter(())

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        """Return the requests that show whether a run can begin, without Spark.

        ``rows`` returns the rows' columns; None where only Spark knows them.
        """
        return []

    def schema_planner(self, spark: SparkSession, noted: str | None) -> SchemaPlanner:
        """Return what plans the changes of the sink's columns for ``lakefeed plan``; executes nothing.

        ``noted`` is the reader's schema in the checkpoint location.
        """
        return NotedSchema(noted, lambda rows: self.require_columns(spark, rows))

    def encoder_refusal(self, spark: SparkSession, rows: Callable[[], StructType | None]) -> str | None:
        """Return why lakefeed's encoder of Parquet files does not write the rows; None if it does.

        ``rows`` returns their columns, for a table that does not exist yet and for files.
        """
        return "lakefeed's is for Parquet files"

    def require_columns(self, spark: SparkSession, rows: StructType) -> None:
        """Refuse rows that lack a column which the settings name, by a ConfigError with the first of them."""


@dataclass
class StoredState:
    """The position of a feed in its sink: its offsets in a ledger, or the newest batch in a log; read on request."""

    keeps_ledger: bool = False
    keeps_log: bool = False
    position: Callable[[], Position | None] = lambda: None
    logged: Callable[[], int | None] = lambda: None


@dataclass(frozen=True)
class NotedSchema:
    """Plans no change, for a sink whose reader's schema is noted in the checkpoint location; ``check`` refuses rows."""

    noted: str | None
    check: Callable[[StructType], None]

    def stored_schema(self) -> StoredSchema | None:
        return None if self.noted is None else StoredSchema.of_json(self.noted)

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        """Return no change; raise what the start would raise."""
        self.check(rows)
        return ()


def checked(key: str, ask: Callable[[], object]) -> Check:
    """Return a check that makes a request, and whose errors become problems of the setting ``key``."""

    def check() -> list[Problem]:
        try:
            ask()
        except LakefeedError as error:
            return [Problem.of(error, key=key)]
        return []

    return check
