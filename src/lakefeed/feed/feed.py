"""The parts of one feed, as its settings say: source, decoder, transform, sink and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.config.connections import Connections
from lakefeed.config.failures import DeadLetters
from lakefeed.config.models import PipelineConfig
from lakefeed.config.names import catalog_of
from lakefeed.config.topic_tables import config_of
from lakefeed.errors import ConfigError
from lakefeed.feed.batch_writer import BatchWriter
from lakefeed.feed.counting import Counting, CountInQuery
from lakefeed.feed.decoder import FeedDecoder
from lakefeed.feed.facts import FeedIdentity
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.feed.source import FeedSource
from lakefeed.ledger.checkpoint import Claim
from lakefeed.offsets.ranges import Partition
from lakefeed.records.decode.resolve import put_credentials
from lakefeed.records.transform.plan import QueryPlan, keeps_no_state
from lakefeed.records.transform.steps import TransformSteps, split_by_topic
from lakefeed.sinks.dead_letters.query import DeadLetterReader
from lakefeed.sinks.dead_letters.store import DeadLetterStore
from lakefeed.sinks.dead_letters.table import DeadLetterTable, TableReader
from lakefeed.sinks.dead_letters.topic import DeadLetterTopic
from lakefeed.sinks.dead_letters.topic_reader import TopicReader
from lakefeed.sinks.factory import AnySink, open_sink, sink_of
from lakefeed.sinks.protocol import LedgerTable, RowSink, SchemaPlanner, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True, eq=False)
class Feed:
    """One feed, and its parts.

    Attributes:
        config: the pipeline; of one topic, where each has a table of its own.
        connections: store and catalogs.
        view: the name of the decoded rows in the transform's SQL.
        folder: where the pipeline file is: Python functions are searched there too.
    """

    config: PipelineConfig
    connections: Connections
    view: str
    folder: Path | None = None
    _plans: list[QueryPlan] = field(default_factory=list, init=False, repr=False)

    @cached_property
    def identity(self) -> FeedIdentity:
        """The feed as its start names it."""
        return FeedIdentity.of(self.config, folder=self.folder)

    @cached_property
    def source(self) -> FeedSource:
        """Where records come from."""
        return FeedSource(self.config, self.connections)

    @cached_property
    def decoder(self) -> FeedDecoder:
        """How records become rows; asks the registry once."""
        return FeedDecoder(self.config)

    @cached_property
    def transform(self) -> TransformSteps:
        """From decoded rows to the sink's, with its Python functions loaded.

        Raises:
            ConfigError: a function does not exist, or does not take its options.
        """
        return TransformSteps(self.config.transform, view=self.view, folder=self.folder)

    def with_checkpoint(self, location: str) -> Feed:
        """Return the same feed with another checkpoint location; nothing that was resolved is kept."""
        config = self.config.model_copy(update={"checkpoint": location})
        return Feed(config=config, connections=self.connections, view=self.view, folder=self.folder)

    def for_topic(self, topic: str) -> Feed:
        """Return the feed of one topic, of a pipeline whose topics go to a table each.

        Raises:
            ConfigError: all topics go to one table, or the pipeline does not read this one.
        """
        if not self.config.has_many_tables:
            raise ConfigError(f"pipeline '{self.config.name}' has one table for all its topics")
        if not self.config.kafka.reads(topic):
            raise ConfigError(f"pipeline '{self.config.name}' does not read the topic {topic}")
        config = config_of(self.config, topic)
        return Feed(config=config, connections=self.connections, view=self.config.name, folder=self.folder)

    def read(self, spark: SparkSession, *, starting: Mapping[str, Mapping[int, int]] | None = None) -> DataFrame:
        """Read the source as a stream: see ``FeedSource.read_stream``."""
        return self.source.read_stream(spark, starting=starting)

    def rows(self, records: DataFrame) -> DataFrame:
        """Decode and transform records of a stream or batch, to look at; a record that cannot be read stops it."""
        if self.config.source.numbered is None:
            return self.transform(records)
        read = self.decoder.strict_rows(records.sparkSession)
        return self.transform(split_by_topic(records, self.transform.streams, read))

    def plan(self, spark: SparkSession) -> QueryPlan:
        """Return how the transform runs as a stream; nothing is begun.

        Raises:
            ConfigError: it does not fit the rows, or Spark cannot run it as a stream.
        """
        if keeps_no_state(self.config):
            return QueryPlan()
        if not self._plans:
            put_credentials(spark, self.config.decode)
            self._plans.append(self.plan_of(self.rows(self.read(spark))))
        return self._plans[0]

    def plan_of(self, frame: DataFrame) -> QueryPlan:
        """Return how Spark runs this frame as the feed's query."""
        return QueryPlan.of(frame, output_mode=self.config.output_mode, streams=len(self.transform.streams))

    def query_check(self, checkpoint: Claim, *, is_new_query: bool) -> Callable[[DataFrame], None]:
        """Return what looks at the frame of a query with state, before anything is changed for it.

        Args:
            checkpoint: where the query's state is noted.
            is_new_query: whether it has none yet.
        """
        has_state = not is_new_query

        def check(frame: DataFrame) -> None:
            nonlocal has_state
            plan = self.plan_of(frame)
            noted = tuple(checkpoint.noted.state)
            if has_state:
                plan.require_same_state(noted, checkpoint=self.config.checkpoint)
            has_state = True  # The next schema of this run is compared with the state that this one has begun.
            if plan.state != noted:
                checkpoint.remember(state=plan.state)

        return check

    def claim(self, spark: SparkSession) -> Claim:
        """Claim the feed's checkpoint location.

        Raises:
            CheckpointMismatch: it belongs to another feed.
        """
        identity = self.identity
        return Claim(spark, self.config.checkpoint, identity.owner, transform=identity.transform_id)

    def require_stateless(self, spark: SparkSession) -> None:
        """Refuse a transform with state, for records that are not read by its query.

        Raises:
            ConfigError: the transform keeps state.
        """
        if self.plan(spark).stateful:
            raise ConfigError(
                f"the transform of '{self.config.name}' keeps state from batch to batch, and these records are no "
                "batch of its query: they would be counted by themselves",
                where="transform",
                hint="feeds with state take records from their query alone: no table for each topic, no backfill, no "
                "replay of dead letters",
            )

    def begin_writer(
        self,
        spark: SparkSession,
        sink: Sink,
        records: DataFrame,
        *,
        fenced: bool = True,
        lost: Collection[Partition] = (),
        check_query: Callable[[DataFrame], None] | None = None,
        alone: bool = False,
    ) -> BatchWriter:
        """Make the writer of the feed's batches, and prepare the sink and the dead letters for it.

        Args:
            spark: the session.
            sink: where rows go.
            records: as they come from the source; only their columns count here.
            fenced: take the feed's fence. Not for work beside a running driver.
            lost: partitions whose records cannot be read again.
            check_query: for a query with state, looks at its frame before anything is changed: see ``query_check``.
            alone: these records are all that the feed will ever have, so that state may be built from them alone.

        Raises:
            ConfigError: the transform keeps state, and the records are not its query's.
        """
        if check_query is None and not alone:
            self.require_stateless(spark)
        dead_letters = self.dead_letter_store(spark) if self.config.dead_letters is not None else None
        if dead_letters is not None:
            dead_letters.ensure()
        counting = None if check_query is None else lambda rows: CountInQuery(spark, rows, sink)
        writer = self.batch_writer(spark, sink, dead_letters, counting=counting, check_query=check_query)
        writer.begin(records, fenced=fenced, lost=lost)
        return writer

    def batch_writer(
        self,
        spark: SparkSession,
        sink: RowSink,
        dead_letters: DeadLetterStore | None,
        *,
        counting: Callable[[RowBuilder], Counting] | None = None,
        check_query: Callable[[DataFrame], None] | None = None,
    ) -> BatchWriter:
        """Make the writer of the feed's batches; nothing is created or changed.

        Args:
            spark: the session.
            sink: where rows go, and what remembers the reader's schema.
            dead_letters: where dead letters go, if they are kept.
            counting: makes the counter of the records' outcomes. Default: one for each attempt to write a batch.
            check_query: see ``begin_writer``.
        """
        config, source = self.config, self.config.source.numbered
        rows = self.decoder.row_builder(spark, sink, self.transform, check=check_query)
        # A query with state reads its records itself, and its rows cannot be built from a part of them.
        hands_over_records = counting is None
        return BatchWriter(
            spark,
            feed=config.name,
            sink=sink,
            rows=rows,
            counting=None if counting is None else counting(rows),
            dead_letters=dead_letters,
            budget=config.dead_letters.budget if config.dead_letters else None,
            most_records=source.max_records_per_batch if source is not None and hands_over_records else None,
            reread=partial(self.source.reread, spark) if config.source.kafka and hands_over_records else None,
        )

    def sink(self, spark: SparkSession, checkpoint: Claim, *, note: Callable[[str], None] = lambda note: None) -> Sink:
        """Open the feed's own sink, or that and the sinks beside it as one.

        Args:
            spark: the session.
            checkpoint: the feed's.
            note: called with a message when one of several sinks pauses or resumes.

        Raises:
            ConfigError: the table's catalog is not declared, or there is no such class.
        """
        put_credentials(spark, self.config.decode)
        return open_sink(self.config, self.connections, spark=spark, claim=checkpoint, note=note, folder=self.folder)

    def ledger_table(self, spark: SparkSession) -> LedgerTable:
        """Open the Iceberg table that holds the feed's ledger.

        Raises:
            ConfigError: its catalog is not declared, or the ledger is elsewhere.
        """
        put_credentials(spark, self.config.decode)
        return self.sink_definition.open_table(spark)

    def schema_planner(self, spark: SparkSession, noted: str | None) -> SchemaPlanner:
        """Return what plans the changes of the sink's columns: see ``SinkDefinition.schema_planner``."""
        put_credentials(spark, self.config.decode)
        return self.sink_definition.schema_planner(spark, noted)

    @property
    def sink_definition(self) -> AnySink:
        """The feed's own sink."""
        return sink_of(self.config, self.connections, folder=self.folder)

    def dead_letters(self) -> DeadLetterReader:
        """Open the dead letters for reading without Spark.

        Raises:
            ConfigError: the pipeline keeps none.
        """
        kept = self._kept
        if kept.table is not None:
            return TableReader(kept.table, connections=self.connections)
        return TopicReader(kept.topic or "", cluster=self.config.kafka)

    def dead_letter_store(self, spark: SparkSession) -> DeadLetterStore:
        """Open the dead letters for writing, replay and deletion.

        Raises:
            ConfigError: the pipeline keeps none, or the table's catalog is not declared.
        """
        kept = self._kept
        if kept.table is not None:
            self.connections.catalog(catalog_of(kept.table))
            return DeadLetterTable(
                spark, kept.table, feed=self.config.name, records=partial(self.source.reread_with_headers, spark)
            )
        return DeadLetterTopic(spark, kept.topic or "", feed=self.config.name, source=self.config.kafka)

    @property
    def _kept(self) -> DeadLetters:
        if self.config.dead_letters is None:
            raise ConfigError(
                f"pipeline '{self.config.name}' keeps no dead letters",
                hint="dead_letters: {table: catalog.namespace.table}, or {topic: name}",
            )
        return self.config.dead_letters
