"""The parts of one feed, as its settings say: source, decoder, transform, sink and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

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
from lakefeed.records.sources.kafka import SourceTopics, mark_copies, read_batch, read_stream
from lakefeed.records.sources.reader import SourceReader, open_reader
from lakefeed.records.sources.rows import read_rows
from lakefeed.records.transform.plan import QueryPlan, keeps_no_state
from lakefeed.records.transform.steps import TransformSteps, split_by_topic
from lakefeed.sinks.dead_letters.store import DeadLetterReader, DeadLetterStore
from lakefeed.sinks.dead_letters.table import DeadLetterTable, TableReader
from lakefeed.sinks.dead_letters.topic import DeadLetterTopic, TopicReader
from lakefeed.sinks.definition import LedgerTable, RowSink, SchemaPlanner, Sink
from lakefeed.sinks.factory import AnySink, open_sink, sink_of

FAST_PATH = "spark.lakefeed.fastPath"
"""Spark's setting: whether Parquet files of Iceberg tables are written by columns (``ColumnarModel.java``)."""

QueryCheck = Callable[["DataFrame"], None]
"""Looks at the frame of a query with state before anything is changed for it; raises if it must not run."""


@dataclass(frozen=True, kw_only=True)
class FeedPath:
    """The reader of a feed's records and the encoder of its rows, in words."""

    reader: str
    encoder: str

    def __str__(self) -> str:
        return f"reader: {self.reader}; encoder: {self.encoder}"


@dataclass(frozen=True)
class FeedSource:
    """The source of one feed: read as a stream, or the records of some offsets again."""

    config: PipelineConfig
    connections: Connections

    @property
    def keeps_headers(self) -> bool:
        return self.config.decode.reads_headers

    @property
    def reads_headers(self) -> bool:
        """Check that a stream reads the records' headers: to decode or keep them, or to mark duplicates by them."""
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
        """Read the topics' records as a stream, undecoded; or the rows of another source.

        Args are those of ``lakefeed.records.sources.kafka.read_stream``; ``marks`` are the source's own names for the
        positions in ``starting``.
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
        """Read the records of these offsets of Kafka as a stream would; duplicates among them are marked."""
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
        """Read the records of these offsets of Kafka again, every one of them."""
        return read_batch(spark, self.config.kafka, ranges=ranges, headers=self.keeps_headers)

    def reread_with_headers(self, spark: SparkSession, spans: Sequence[OffsetRange], of: OffsetRanges) -> DataFrame:
        """Read some records of a commit again, for its dead letters; ``of`` are the ranges of the commit."""
        if (installed := self.config.source.installed) is not None:
            return self._installed(spark, installed).read_batch(spans, of=of)
        return read_batch(spark, self.config.kafka, ranges=spans, headers=True)

    def topics(self, spark: SparkSession) -> SourceTopics | SourceReader | None:
        """Return what describes the topics, or the stream, of this moment; None for a source without offsets."""
        kafka, installed = self.config.source.kafka, self.config.source.installed
        if installed is not None:
            return self._installed(spark, installed)
        return SourceTopics(kafka) if kafka is not None else None

    def _installed(self, spark: SparkSession, source: InstalledSource) -> SourceReader:
        completed = self.connections.source
        return open_reader(spark, completed if isinstance(completed, InstalledSource) else source)

    def _mark_duplicates(self, records: DataFrame) -> DataFrame:
        """Mark duplicates, if the pipeline says so: they are skipped, and counted."""
        if not self.config.kafka.deduplicate:
            return records
        found = mark_copies(records)
        return found if self.keeps_headers else found.drop("headers")


def state_without_checkpoint() -> ConfigError:
    """Return the refusal of a query whose state has no place."""
    return ConfigError(
        "the transform keeps state from batch to batch, and without a checkpoint it has no place",
        where="transform",
        hint=CHECKPOINT_HINT,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Feed:
    """One feed, and its parts.

    Attributes:
        config: the pipeline; of one topic, where each has a table of its own.
        view: the name of the decoded rows in the transform's SQL.
        folder: the pipeline file's: Python functions are searched there too.
        scratch: where a query keeps its files instead of the checkpoint; nothing reads them after the run.
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
        """From decoded rows to the sink's; a ConfigError if a Python function is missing or has other options."""
        return TransformSteps(self.config.transform, view=self.view, folder=self.folder)

    @property
    def sink_definition(self) -> AnySink:
        return sink_of(self.config, self.connections, folder=self.folder)

    def with_scratch(self, location: str) -> Feed:
        """Return the same feed with a place for the files of its query; nothing that was resolved is kept."""
        return replace(self, scratch=location)

    def renewed(self) -> Feed:
        """Return the same feed, with nothing that was resolved."""
        return replace(self)

    @property
    def checkpoint_location(self) -> str:
        """The place of the query's files: the checkpoint, or the scratch of a run."""
        return self.scratch or self.config.checkpoint

    def for_topic(self, topic: str) -> Feed:
        """Return the feed of one topic, of a pipeline whose topics go to a table each; else a ConfigError."""
        if not self.config.has_many_tables:
            raise ConfigError(f"pipeline '{self.config.name}' has one table for all its topics")
        if not self.config.kafka.reads(topic):
            raise ConfigError(f"pipeline '{self.config.name}' does not read the topic {topic}")
        return replace(self, config=config_of(self.config, topic), view=self.config.name)

    def as_new_topic(self) -> Feed:
        """Return the feed of one topic, which came when the others had begun."""
        return replace(self, config=as_new_topic(self.config))

    def rows(self, records: DataFrame) -> DataFrame:
        """Decode and transform records of a stream or batch, to look at; a record that cannot be read stops it."""
        if self.config.source.numbered is None:
            return self.transform(records)
        read = self.decoder.strict_rows(records.sparkSession)
        return self.transform(split_by_topic(records, self.transform.streams, read))

    def plan(self, spark: SparkSession) -> QueryPlan:
        """Return how the transform runs as a stream; a ConfigError if Spark cannot run it on these rows."""
        if keeps_no_state(self.config):
            return QueryPlan()
        if not self._plans:
            put_credentials(spark, self.config.decode)
            self._plans.append(self.plan_of(self.rows(self.source.read_stream(spark))))
        return self._plans[0]

    def plan_of(self, frame: DataFrame) -> QueryPlan:
        """Return how Spark runs this frame as the feed's query."""
        return QueryPlan.of(frame, output_mode=self.config.output_mode, streams=len(self.transform.streams))

    def query_check(self, checkpoint: Claim, *, is_new_query: bool) -> QueryCheck:
        """Return the check of a query whose state is noted in the checkpoint; a new query has none yet."""
        has_state = not is_new_query

        def check(frame: DataFrame) -> None:
            nonlocal has_state
            plan = self.plan_of(frame)
            noted = tuple(checkpoint.noted.state)
            if has_state:
                plan.require_same_state(noted, checkpoint=self.checkpoint_location)
            has_state = True  # The next schema of this run is compared with the state that this one has begun.
            if plan.state != noted:
                checkpoint.remember(state=plan.state)

        return check

    def require_stateless(self, spark: SparkSession) -> None:
        """Refuse a transform with state, for records that are not read by its query."""
        if self.plan(spark).stateful:
            raise ConfigError(
                f"the transform of '{self.config.name}' keeps state from batch to batch, and these records are no "
                "batch of its query: they would be counted by themselves",
                where="transform",
                hint="feeds with state take records from their query alone: no table for each topic, no backfill, no "
                "replay of dead letters",
            )

    def require_checkpoint_for_state(self, spark: SparkSession) -> None:
        """Refuse a transform with state where the pipeline file names no checkpoint; only Spark knows that of SQL.

        The feed of one of many topics cannot have one: see ``require_stateless``.
        """
        is_of_many = self.view != self.config.name
        if self.config.resumes_by_ledger and not is_of_many and self.plan(spark).stateful:
            raise state_without_checkpoint()

    def claim(self, spark: SparkSession) -> Claim:
        """Claim the feed's checkpoint location; a CheckpointMismatch if it belongs to another feed."""
        identity = self.identity
        return Claim(spark, self.checkpoint_location, identity.owner, transform=identity.transform_id)

    def sink(self, spark: SparkSession, checkpoint: Claim, *, note: Callable[[str], None] = lambda note: None) -> Sink:
        """Open the feed's own sink, or that and the sinks beside it as one; ``note`` reports their pauses."""
        put_credentials(spark, self.config.decode)
        return open_sink(self.config, self.connections, spark=spark, claim=checkpoint, note=note, folder=self.folder)

    def ledger_table(self, spark: SparkSession) -> LedgerTable:
        """Open the Iceberg table with the feed's ledger; a ConfigError if there is none, or no such catalog."""
        put_credentials(spark, self.config.decode)
        return self.sink_definition.open_table(spark)

    def schema_planner(self, spark: SparkSession, noted: str | None) -> SchemaPlanner:
        """Return what plans the changes of the sink's columns: see ``SinkDefinition.schema_planner``."""
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
        """Make the writer of the feed's batches, and prepare the sink and the dead letters for it.

        Args:
            records: see ``BatchWriter.begin``, as for ``fenced`` and ``lost``.
            check_query: for a query with state: see ``query_check``. Without it, a transform with state is refused.
            alone: these records are all that the feed will ever have, so that state may be built from them alone.
        """
        if check_query is None and not alone:
            self.require_stateless(spark)
        # The feed's queries copy the session, and tasks have its settings.
        spark.conf.set(FAST_PATH, self.config.has_fast_encoder)
        dead_letters = self.dead_letter_store(spark) if self.config.dead_letters is not None else None
        if dead_letters is not None:
            dead_letters.ensure()
        writer = self.batch_writer(spark, sink, dead_letters, check_query=check_query, alone=alone)
        return writer.begin(records, fenced=fenced, lost=lost)

    def general_path_reason(self, spark: SparkSession, rows: RowBuilder) -> str | None:
        """Return why the batches are not read by a ``DirectReader``; None if they are."""
        if not self.config.has_fast_reader:
            return f"fast_path: {self.config.fast_path}"
        return DirectReader.refusal(spark, self.config.source.kafka, rows)

    def path(
        self, spark: SparkSession, rows: RowBuilder, columns: Callable[[], StructType | None], *, stateful: bool
    ) -> FeedPath:
        """Return who reads the records and who encodes the rows, and why where that is not lakefeed.

        ``columns`` returns the rows', where the table may not exist yet. A query with state decodes records with Spark.
        """
        config = self.config
        # A query over a source without offsets resumes as one with state, and is never read by lakefeed.
        has_state = stateful and config.source.numbered is not None
        reason = "the transform keeps state" if has_state else self.general_path_reason(spark, rows)
        if reason is None:
            reader = "lakefeed's, which decodes each record as it reads it"
        elif config.has_fast_reader and config.source.kafka is not None and not uses_tokens(spark):
            reader = f"lakefeed's; each record is decoded by a step of its own ({reason})"
        else:
            reader = f"Spark's source ({reason})"
        refusal: str | None = f"fast_path: {config.fast_path}"
        if config.has_fast_encoder:
            refusal = self.sink_definition.encoder_refusal(spark, columns)
        encoder = "lakefeed's, by columns" if refusal is None else f"the sink's own ({refusal})"
        return FeedPath(reader=reader, encoder=encoder)

    def batch_writer(
        self,
        spark: SparkSession,
        sink: RowSink,
        dead_letters: DeadLetterStore | None,
        *,
        check_query: QueryCheck | None = None,
        alone: bool = False,
    ) -> BatchWriter:
        """Make the writer of the feed's batches, as for ``begin_writer``; nothing is created or changed."""
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
            # The rows of a query with state cannot be built from a part of its records.
            reread=partial(self.source.reread, spark) if config.source.kafka and check_query is None else None,
        )

    def dead_letters(self) -> DeadLetterReader:
        """Open the dead letters for reading without Spark; a ConfigError if the pipeline keeps none."""
        kept = self._kept
        if kept.table is not None:
            return TableReader(kept.table, connections=self.connections)
        return TopicReader(kept.topic or "", cluster=self.config.kafka)

    def dead_letter_store(self, spark: SparkSession) -> DeadLetterStore:
        """Open the dead letters for writing, replay and deletion; a ConfigError if the pipeline keeps none."""
        kept = self._kept
        if kept.table is not None:
            self.connections.catalog(catalog_of(kept.table))
            records = partial(self.source.reread_with_headers, spark)
            return DeadLetterTable(spark, kept.table, feed=self.config.name, records=records)
        return DeadLetterTopic(spark, kept.topic or "", feed=self.config.name, source=self.config.kafka)

    @property
    def _kept(self) -> DeadLetters:
        if self.config.dead_letters is None:
            raise ConfigError(
                f"pipeline '{self.config.name}' keeps no dead letters",
                hint="dead_letters: {table: catalog.namespace.table}, or {topic: name}",
            )
        return self.config.dead_letters
