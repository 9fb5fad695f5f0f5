"""What a start says to the catalog, found out as the start itself does: nothing is executed, and no record read.

The rows' columns come of Spark's analysis of decode and transform, over the columns of the Kafka source. The statements
are those that ``apply_schema`` and ``ensure`` carry out, made by the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefeed.clients.spark.errors import translated
from lakefeed.errors import LakefeedError
from lakefeed.feed.feed import Feed
from lakefeed.operations.status import FeedStatus
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.sinks.dead_letters.store import TopicCreation
from lakefeed.sinks.export import Target
from lakefeed.sinks.protocol import SchemaPlanner, TableChange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(kw_only=True)
class Prepared:
    """What a start makes ready, as far as it gets.

    Attributes:
        tables: what becomes of them, in the order of a start: dead letters, history, the feed's own.
        dead_letter_topic: a topic that is made.
        notes: what the start would tell.
        refusal: what it would end with; None if it begins.
    """

    tables: list[TableChange] = field(default_factory=list)
    dead_letter_topic: TopicCreation | None = None
    notes: tuple[str, ...] = ()
    refusal: LakefeedError | None = None


def prepared(feed: Feed, survey: FeedStatus, *, spark: SparkSession) -> Prepared:
    """What a start of a feed makes ready.

    Args:
        feed: newly built, so that it knows the registry's schema of this moment.
        survey: where the feed stands.
        spark: a session.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    found = Prepared()
    try:
        _prepare(feed, survey, spark, found)
    except (LakefeedError, Py4JError, PySparkException) as error:
        found.refusal = translated(error)
    return found


def _prepare(feed: Feed, survey: FeedStatus, spark: SparkSession, found: Prepared) -> None:
    sink = _PlannedSink(feed.schema_planner(spark, survey.note.schema if survey.note else None))
    letters = feed.dead_letter_store(spark) if feed.config.dead_letters is not None else None
    if letters is not None:
        change = letters.change()
        if isinstance(change, TableChange):
            found.tables.append(change)
        else:
            found.dead_letter_topic = change
    writer = feed.batch_writer(spark, sink, letters)
    writer.begin(feed.read(spark), fenced=False)
    found.tables += sink.changes
    found.notes = writer.notes()
    if letters is not None and feed.sink_definition.state().keeps_ledger:
        position = survey.position
        letters.check(position.ranges if position else None, moved=position is not None and position.is_move)


class _PlannedSink(Target):
    """A sink that plans its changes and makes none.

    Attributes:
        changes: of its columns.
    """

    def __init__(self, planner: SchemaPlanner) -> None:
        super().__init__()
        self._planner = planner
        self.changes: tuple[TableChange, ...] = ()

    def stored_schema(self) -> StoredSchema | None:
        return self._planner.stored_schema()

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        self.changes = self._planner.changes(rows, stored, entries)
