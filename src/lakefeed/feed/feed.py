"""Builds the parts of one feed from its settings: source, decoder, transform, sink and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.config.blocks import InstalledSource
from lakefeed.config.connections import Connections
from lakefeed.config.decoding import DeadLetters
from lakefeed.config.models import CHECKPOINT_HINT, PipelineConfig
from lakefeed.config.topic_tables import as_new_topic, config_of
from lakefeed.config.values import catalog_of
from lakefeed.errors import ConfigError
from lakefeed.feed.batch_reader import BatchReader, DirectReader, QueryReader, uses_tokens
from lakefeed.feed.batch_writer import BatchWriter, SpentBudget
from lakefeed.feed.open import FeedIdentity
from lakefeed.feed.row_builder import FeedDecoder, RowBuilder
from lakefeed.lazy import DataFrame, SparkSession, StructType
from lakefeed.ledger.checkpoint import Claim
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.records.decode.resolve import put_credentials
from lakefeed.records.sources import (
    SourceReader,
    SourceTopics,
    mark_copies,
    open_reader,
    read_batch,
    read_rows,
    read_stream,
)
from lakefeed.records.transform import QueryPlan, TransformSteps, keeps_no_state, split_by_topic
from lakefeed.sinks.dead_letters.store import DeadLetterReader, DeadLetterStore
from lakefeed.sinks.dead_letters.table import DeadLetterTable, TableReader
from lakefeed.sinks.dead_letters.topic import DeadLetterTopic, TopicReader
from lakefeed.sinks.definition import LedgerTable, RowSink, SchemaPlanner, Sink
from lakefeed.sinks.factory import AnySink, open_sink, sink_of

if TYPE_CHECKING:
    from lakefeed.records.schema.inference import InferredSchema

FAST_PATH = "spark.lakefeed.fastPath"
"""The Spark setting that makes ``ColumnarModel.java`` write the Parquet files of Iceberg tables."""

QueryCheck = Callable[["DataFrame"], None]
"""Raises an error if a query with state must not run on this DataFrame; called before the feed changes anything."""


@dataclass(frozen=True, kw_only=True)
class FeedPath:
    """Describes the reader of a feed's records, the encoder of its rows, and how upserts are written."""

    reader: str
    encoder: str
    upserts: str | None = None

    def __str__(self) -> str:
        upserts = "" if self.upserts is None else f"; upserts: {self.upserts}"
        return f"reader: {self.reader}; encoder: {self.encoder}{upserts}"


@dataclass(frozen=True)
class FeedSource:
    """The source of one feed: returns a stream, or the records of offset ranges."""

    config: PipelineConfig
    connections: Connections

    @property
    def keeps_headers(self) -> bool:
        return self.config.decode.reads_headers

    @property
    def reads_headers(self) -> bool:
        """Return whether a stream reads records' headers, in order to decode or store them or to find duplicates."""
        kafka = self.config.source.kafka
        return self.keeps_headers or (kafka is not None and kafka.deduplicate)

    def read_stream(
        self,
        spark: SparkSession,
        *,
        starting: Mapping[str, Mapping[int, int]] | None = None,
        marks: Mapping[Partition, str] | None = None,
        gather: bool = True,
        bounded: bool = True,
    ) -> DataFrame:
        """Return a stream of undecoded records, or of the rows of a source without records.

        The arguments are those of ``lakefeed.records.sources.read_stream``; ``marks`` are the source's own names for
        the offsets in ``starting``.
        """
        source = self.config.source
        if source.installed is not None:
            return self._installed(spark, source.installed).read_stream(starting=starting, marks=marks)
        if source.kafka is None:
            return read_rows(spark, source)
        return self._mark_duplicates(
            read_stream(
                spark,
                source.kafka,
                headers=self.reads_headers,
                starting=starting,
                gather=gather,
                bounded=bounded,
                fast_path=self.config.has_fast_reader,
            )
        )

    def read_batch(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return the records of these Kafka offsets as a stream would, with duplicates marked."""
        return self._mark_duplicates(
            read_batch(
                spark,
                self.config.kafka,
                ranges=ranges,
                headers=self.reads_headers,
                fast_path=self.config.has_fast_reader,
            )
        )

    def reread(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return the records of these Kafka offsets once more, without marks for duplicates."""
        return read_batch(spark, self.config.kafka, ranges=ranges, headers=self.keeps_headers)

    def sample(self, ranges: Sequence[OffsetRange]) -> InferredSchema:
        """Guess a schema from the first records of these offset ranges, at most ``sample_records`` per partition."""
        from lakefeed.clients.kafka.records import read_ranges
        from lakefeed.records.schema.inference import infer_schema

        settings = self.config.decode.json_
        assert settings is not None  # Only a feed of JSON records has a guessed schema.
        first = {span.key: span for span in sorted(ranges, key=lambda span: span.start, reverse=True)}
        most = dict.fromkeys(first, settings.sample_records)
        records = read_ranges(self.config.kafka, list(first.values()), most=most)
        return infer_schema((record.value for record in records if record.value is not None), careful=True)

    def reread_with_headers(self, spark: SparkSession, spans: Sequence[OffsetRange], of: OffsetRanges) -> DataFrame:
        """Return records of a commit once more, with headers, for its dead letters; ``of`` has the commit's ranges."""
        if (installed := self.config.source.installed) is not None:
            return self._installed(spark, installed).read_batch(spans, of=of)
        return read_batch(spark, self.config.kafka, ranges=spans, headers=True)

    def topics(self, spark: SparkSession) -> SourceTopics | SourceReader | None:
        """Return an object that describes the topics or streams as they are now; None for a source without offsets."""
        kafka, installed = self.config.source.kafka, self.config.source.installed
        if installed is not None:
            return self._installed(spark, installed)
        return SourceTopics(kafka) if kafka is not None else None

    def _installed(self, spark: SparkSession, source: InstalledSource) -> SourceReader:
        completed = self.connections.source
        return open_reader(spark, completed if isinstance(completed, InstalledSource) else source)

    def _mark_duplicates(self, records: DataFrame) -> DataFrame:
        """If the pipeline file has ``deduplicate``, mark duplicates, so that the decoder skips and counts them."""
        if not self.config.kafka.deduplicate:
            return records
        marked = mark_copies(records)
        return marked if self.keeps_headers else marked.drop("headers")


def state_without_checkpoint() -> ConfigError:
    return ConfigError(
        "the transform keeps state from batch to batch, and only a checkpoint can store it",
        where="transform",
        hint=CHECKPOINT_HINT,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Feed:
    """One feed and its parts.

    Attributes:
        config: the pipeline; if every topic has its own table, the pipeline for one topic.
        view: the name of the decoded rows in the transform's SQL.
        folder: the folder of the pipeline file; it may have the modules of the Python functions.
        scratch: the folder of the query's files if the feed has no checkpoint; the run removes the folder at its end.
    """

    config: PipelineConfig
    connections: Connections
    view: str
    folder: Path | None = None
    scratch: str = ""
    _plans: list[QueryPlan] = field(default_factory=list, init=False, repr=False)

    @cached_property
    def identity(self) -> FeedIdentity:
        return FeedIdentity.of(self.config, folder=self.folder)

    @cached_property
    def source(self) -> FeedSource:
        return FeedSource(self.config, self.connections)

    @cached_property
    def decoder(self) -> FeedDecoder:
        return FeedDecoder(self.config)

    @cached_property
    def transform(self) -> TransformSteps:
        """The steps from decoded rows to the sink's rows; raises ConfigError for a missing or wrong Python function."""
        return TransformSteps(self.config.transform, view=self.view, folder=self.folder)

    @property
    def sink_definition(self) -> AnySink:
        return sink_of(self.config, self.connections, folder=self.folder)

    def with_scratch(self, location: str) -> Feed:
        """Return the same feed with the ``scratch`` folder for its query's files, and without cached parts."""
        return replace(self, scratch=location)

    def renewed(self) -> Feed:
        """Return the same feed without cached parts."""
        return replace(self)

    @property
    def checkpoint_location(self) -> str:
        """The location of the query's files: the checkpoint, or without a checkpoint ``scratch``."""
        return self.scratch or self.config.checkpoint

    def for_topic(self, topic: str) -> Feed:
        """Return the feed of one topic, if the pipeline has one table per topic; otherwise raise ConfigError."""
        if not self.config.has_many_tables:
            what = f"pipeline '{self.config.name}' has one table for all its topics"
            raise ConfigError(what, hint="leave the topic out")
        if not self.config.kafka.reads(topic):
            what = f"pipeline '{self.config.name}' does not read the topic {topic}"
            raise ConfigError(what, hint="name one of the pipeline's topics: lakefeed status pipeline.yaml lists them")
        return replace(self, config=config_of(self.config, topic), view=self.config.name)

    def as_new_topic(self) -> Feed:
        """Return the feed of a topic that was created after the first start: its start is ``new_topics``."""
        return replace(self, config=as_new_topic(self.config))

    def rows(self, records: DataFrame) -> DataFrame:
        """Return the decoded and transformed rows of a stream or batch; an unreadable record makes Spark fail."""
        if self.config.source.numbered is None:
            return self.transform(records)
        read = self.decoder.strict_rows(records.sparkSession)
        return self.transform(split_by_topic(records, self.transform.streams, read))

    def plan(self, spark: SparkSession) -> QueryPlan:
        """Return the plan of the transform's stream; raise ConfigError if Spark cannot run it on these rows."""
        if keeps_no_state(self.config):
            return QueryPlan()
        if not self._plans:
            put_credentials(spark, self.config.decode)
            self._plans.append(self.plan_of(self.rows(self.source.read_stream(spark))))
        return self._plans[0]

    def plan_of(self, frame: DataFrame) -> QueryPlan:
        return QueryPlan.of(frame, output_mode=self.config.output_mode, streams=len(self.transform.streams))

    def query_check(self, checkpoint: Claim, *, is_new_query: bool) -> QueryCheck:
        """Return a check that a query keeps the state that the checkpoint's note describes; skipped for a new query."""
        has_state = not is_new_query

        def check(frame: DataFrame) -> None:
            nonlocal has_state
            plan = self.plan_of(frame)
            noted = tuple(checkpoint.noted.state)
            if has_state:
                plan.require_same_state(noted, checkpoint=self.checkpoint_location)
            has_state = True  # From now on the checkpoint has this state, which the run's next query must keep, too.
            if plan.state != noted:
                checkpoint.remember(state=plan.state)

        return check

    def require_stateless(self, spark: SparkSession) -> None:
        """Raise an error if the transform keeps state: records that are read outside the query lack that state."""
        if self.plan(spark).stateful:
            raise ConfigError(
                f"the transform of '{self.config.name}' keeps state from batch to batch; rows of records that are read "
                "outside the feed's query would lack that state",
                where="transform",
                hint="remove the state, or use one table, without backfill and without replay of dead letters",
            )

    def require_checkpoint_for_state(self, spark: SparkSession) -> None:
        """Raise an error if the transform keeps state, as Spark's plan shows, and the feed has no checkpoint.

        For a pipeline with one table per topic, ``require_stateless`` refuses such a transform.
        """
        is_of_many = self.view != self.config.name
        if self.config.resumes_by_ledger and not is_of_many and self.plan(spark).stateful:
            raise state_without_checkpoint()

    def claim(self, spark: SparkSession) -> Claim:
        """Claim the feed's checkpoint location; raise CheckpointMismatch if it belongs to another feed."""
        identity = self.identity
        return Claim(spark, self.checkpoint_location, identity.owner, transform=identity.transform_id)

    def sink(self, spark: SparkSession, checkpoint: Claim, *, note: Callable[[str], None] = lambda note: None) -> Sink:
        """Open the feed's sink and its additional sinks as one sink; ``note`` gets messages about sinks that lag."""
        put_credentials(spark, self.config.decode)
        return open_sink(self.config, self.connections, spark=spark, claim=checkpoint, note=note, folder=self.folder)

    def ledger_table(self, spark: SparkSession) -> LedgerTable:
        """Open the Iceberg table with the feed's ledger; raise ConfigError if the table or the catalog is missing."""
        put_credentials(spark, self.config.decode)
        return self.sink_definition.open_table(spark)

    def schema_planner(self, spark: SparkSession, noted: str | None) -> SchemaPlanner:
        """Return the planner for changes of the sink's columns: see ``SinkDefinition.schema_planner``."""
        put_credentials(spark, self.config.decode)
        return self.sink_definition.schema_planner(spark, noted)

    def begin_writer(
        self,
        spark: SparkSession,
        sink: Sink,
        records: DataFrame,
        *,
        fenced: bool = True,
        lost: Collection[Partition] = (),
        check_query: QueryCheck | None = None,
        alone: bool = False,
    ) -> BatchWriter:
        """Prepare the sink and the dead letters, and return the writer of the feed's batches.

        Args:
            records, fenced, lost: see ``BatchWriter.begin``.
            check_query: the check of a query with state: see ``query_check``. Without this check, a transform with
                state is refused.
            alone: whether these are all records that the feed ever reads, so that a transform may keep state.
        """
        if check_query is None and not alone:
            self.require_stateless(spark)
        # The feed's queries run in copies of this session, so the copies and their tasks have this setting, too.
        spark.conf.set(FAST_PATH, self.config.has_fast_encoder)
        dead_letters = self.dead_letter_store(spark) if self.config.dead_letters is not None else None
        if dead_letters is not None:
            dead_letters.ensure()
        writer = self.batch_writer(spark, sink, dead_letters, check_query=check_query, alone=alone)
        return writer.begin(records, fenced=fenced, lost=lost)

    def general_path_reason(self, spark: SparkSession, rows: RowBuilder) -> str | None:
        """Return why no ``DirectReader`` can read the batches; None if a ``DirectReader`` reads them."""
        if not self.config.has_fast_reader:
            return f"fast_path: {self.config.fast_path}"
        return DirectReader.refusal(spark, self.config.source.kafka, rows)

    def path(
        self, spark: SparkSession, rows: RowBuilder, columns: Callable[[], StructType | None], *, stateful: bool
    ) -> FeedPath:
        """Describe the feed's reader and encoder; if Spark's or Iceberg's is used, say why.

        ``columns`` returns the rows' columns, for a table that does not exist yet.
        """
        config = self.config
        # ``stateful`` is also true for a source without offsets, which lakefeed's reader cannot read anyway.
        has_state = stateful and config.source.numbered is not None
        reason = "the transform keeps state" if has_state else self.general_path_reason(spark, rows)
        if reason is None:
            reader = "lakefeed's, which decodes each record as it reads it"
        elif config.has_fast_reader and config.source.kafka is not None and not uses_tokens(spark):
            reader = f"lakefeed's; a separate step decodes the records ({reason})"
        else:
            reader = f"Spark's source ({reason})"
        refusal: str | None = f"fast_path: {config.fast_path}"
        if config.has_fast_encoder:
            refusal = self.sink_definition.encoder_refusal(spark, columns)
        encoder = "lakefeed's, by columns" if refusal is None else f"the sink's own ({refusal})"
        return FeedPath(reader=reader, encoder=encoder, upserts=self.sink_definition.lands_changes(spark, columns))

    def batch_writer(
        self,
        spark: SparkSession,
        sink: RowSink,
        dead_letters: DeadLetterStore | None,
        *,
        check_query: QueryCheck | None = None,
        alone: bool = False,
    ) -> BatchWriter:
        """Return the writer of the feed's batches, without preparing the sink as ``begin_writer`` does."""
        config, source = self.config, self.config.source.numbered
        rows = self.decoder.row_builder(spark, sink, self.transform, check=check_query)
        most = source.max_records_per_batch if source is not None else None
        if check_query is not None:
            reader: BatchReader = QueryReader(spark, rows, sink)
        elif most is not None and not alone and self.general_path_reason(spark, rows) is None:
            reader = DirectReader(spark, rows, sink, source=config.kafka, most_records=most)
        else:
            reader = BatchReader(spark, rows, sink, most_records=most)
        return BatchWriter(
            spark,
            feed=config.name,
            sink=sink,
            publisher=self.sink_definition.publisher(spark),
            rows=rows,
            reader=reader,
            dead_letters=dead_letters,
            spent=SpentBudget(config.dead_letters.budget if config.dead_letters else None),
            # A query with state cannot build rows from some of the records alone, so it cannot read records again.
            reread=partial(self.source.reread, spark) if config.source.kafka and check_query is None else None,
            sample=self.source.sample if config.decode.on_unknown_field == "evolve" else None,
        )

    def dead_letters(self) -> DeadLetterReader:
        """Open the dead letters for reading without Spark; raise ConfigError if the pipeline has no dead letters."""
        settings = self._dead_letter_settings
        if settings.table is not None:
            return TableReader(settings.table, connections=self.connections)
        return TopicReader(settings.topic or "", cluster=self.config.kafka)

    def dead_letter_store(self, spark: SparkSession) -> DeadLetterStore:
        """Open the dead letters for writing, replay and deletion; raise ConfigError if the pipeline has none."""
        settings = self._dead_letter_settings
        if settings.table is not None:
            self.connections.catalog(catalog_of(settings.table))
            records = partial(self.source.reread_with_headers, spark)
            return DeadLetterTable(spark, settings.table, feed=self.config.name, records=records)
        return DeadLetterTopic(spark, settings.topic or "", feed=self.config.name, source=self.config.kafka)

    @property
    def _dead_letter_settings(self) -> DeadLetters:
        if self.config.dead_letters is None:
            raise ConfigError(
                f"pipeline '{self.config.name}' keeps no dead letters",
                hint="add dead_letters: {table: catalog.namespace.table}, or {topic: name}",
            )
        return self.config.dead_letters
