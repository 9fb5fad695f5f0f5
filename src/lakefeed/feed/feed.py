"""The parts of one feed, made out of its settings: what decodes, judges, transforms, lands and keeps dead letters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.config.connections import Connections
from lakefeed.config.failures import DeadLetters
from lakefeed.config.kinesis import KinesisSource
from lakefeed.config.models import PipelineConfig
from lakefeed.config.names import catalog_of
from lakefeed.config.topic_tables import config_of
from lakefeed.config.upserts import kept_metadata, tombstones_delete
from lakefeed.errors import ConfigError
from lakefeed.feed.batch_writer import BatchWriter
from lakefeed.feed.counting import Counting, CountInQuery
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.ledger.checkpoint import Claim, Owner
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.records.decode import DecodeSpec, Expectation, Policy, Raw, decoded, rows
from lakefeed.records.decode.deletes import delete_rule
from lakefeed.records.decode.resolve import Decoding, NumberedSource, decoding_of, key_spec_of, put_credentials
from lakefeed.records.schema.reader import ReaderSchema
from lakefeed.records.sources.deduplicate import marked
from lakefeed.records.sources.kinesis import KinesisStream
from lakefeed.records.sources.rows import read_rows
from lakefeed.records.sources.source import read_batch, read_stream
from lakefeed.records.sources.topic_ids import SourceTopics
from lakefeed.records.transform.identity import keeps_no_state, transform_id
from lakefeed.records.transform.plan import QueryPlan
from lakefeed.records.transform.steps import Steps, by_topic
from lakefeed.sinks.dead_letters.query import TableReader
from lakefeed.sinks.dead_letters.store import DeadLetterReader, DeadLetterStore
from lakefeed.sinks.dead_letters.table import DeadLetterTable
from lakefeed.sinks.dead_letters.topic import DeadLetterTopic
from lakefeed.sinks.dead_letters.topic_reader import TopicReader
from lakefeed.sinks.factory import SinkFactory, Table
from lakefeed.sinks.iceberg.table import IcebergTable
from lakefeed.sinks.protocol import RowSink, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Feed:
    """Makes the parts of a feed.

    Args:
        config: the pipeline; of one topic, where each has a table of its own.
        connections: store and catalogs.
        view: what the transform calls the decoded rows.
        folder: where the pipeline file is: Python functions are looked for there too.

    Attributes:
        config: the pipeline.
        connections: store and catalogs.
        view: what the transform calls the decoded rows.
        folder: where the pipeline file is.
    """

    def __init__(
        self, config: PipelineConfig, *, connections: Connections, view: str, folder: Path | None = None
    ) -> None:
        self.config = config
        self.connections = connections
        self.view = view
        self.folder = folder
        self._steps: Steps | None = None
        self._plan: QueryPlan | None = None
        self._resolved: Decoding | None = None

    def at(self, checkpoint: str) -> Feed:
        """The same feed with another checkpoint location."""
        config = self.config.model_copy(update={"checkpoint": checkpoint})
        return Feed(config, connections=self.connections, view=self.view, folder=self.folder)

    def for_topic(self, topic: str) -> Feed:
        """The feed of one topic, of a pipeline whose topics go to a table each.

        Raises:
            ConfigError: all topics go to one table, or this one is not among them.
        """
        if not self.config.has_many_tables:
            raise ConfigError(f"pipeline '{self.config.name}' has one table for all its topics")
        if not self.config.kafka.reads(topic):
            raise ConfigError(f"pipeline '{self.config.name}' does not read the topic {topic}")
        config = config_of(self.config, topic)
        return Feed(config, connections=self.connections, view=self.config.name, folder=self.folder)

    def read(
        self,
        spark: SparkSession,
        *,
        starting: Mapping[str, Mapping[int, int]] | None = None,
        marks: Mapping[Partition, str] | None = None,
        gather: bool = True,
        bounded: bool = True,
    ) -> DataFrame:
        """The topics' records as a stream, undecoded; or the rows of another source.

        Args:
            spark: the session.
            starting: where a query without a checkpoint begins: see ``read_stream``.
            marks: what the source calls these places, if it has names of its own for them.
            gather: wait for ``min_records_per_batch``: see ``read_stream``.
            bounded: keep to ``max_records_per_batch``: see ``read_stream``.
        """
        if self.config.source.kinesis is not None:
            return self.kinesis(spark, self.config.source.kinesis).read_stream(starting=starting, marks=marks)
        if self.config.source.kafka is None:
            return read_rows(spark, self.config.source)
        source, headers = self.config.kafka, "headers" in self.config.decode.metadata
        wanted = headers or source.deduplicate
        return self.once(read_stream(spark, source, headers=wanted, starting=starting, gather=gather, bounded=bounded))

    def once(self, records: DataFrame) -> DataFrame:
        """Records with the copies among them marked, if the source says so: they are skipped, and counted.

        Args:
            records: undecoded; with headers, if copies are to be told.
        """
        if not self.config.kafka.deduplicate:
            return records
        found = marked(records)
        return found if "headers" in self.config.decode.metadata else found.drop("headers")

    def kinesis(self, spark: SparkSession, source: KinesisSource) -> KinesisStream:
        """The stream of Kinesis that the pipeline reads."""
        return KinesisStream(spark, source, self.connections.kinesis or source)

    def described(self, spark: SparkSession) -> SourceTopics | KinesisStream | None:
        """What tells how the source's topics, or its stream, are now; None for a source without offsets."""
        kafka, kinesis = self.config.source.kafka, self.config.source.kinesis
        if kinesis is not None:
            return self.kinesis(spark, kinesis)
        return SourceTopics(kafka) if kafka is not None else None

    def rows(self, records: DataFrame) -> DataFrame:
        """Records decoded and transformed, to look at: one that cannot be read stops it. Stream and batch alike."""
        source = self.config.source.numbered
        if source is None:
            return self.transformed(records)
        spark = records.sparkSession
        spec, key = self._decoding(spark).spec, self._key(spark, source)
        policy = self.policy()

        def read(some: DataFrame) -> DataFrame:
            return rows(
                decoded(some, spec, key=key),
                keep=kept_metadata(self.config),
                on_null="fail" if policy.on_null == "dead_letter" else policy.on_null,
                on_bad_timestamp=policy.on_bad_timestamp,
                envelope=policy.envelope,
                deletes=policy.deletes,
            )

        return self.transformed(by_topic(records, self.functions().streams, read))

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
            check_query: for a query with state, looks at its frame before anything is changed: see ``RowBuilder``.
            alone: these records are all that the feed will ever have, so that state may be built from them alone.

        Raises:
            ConfigError: the transform keeps state, and the records are not its query's.
        """
        if check_query is None and not alone and self.plan(spark).stateful:
            raise ConfigError(
                f"the transform of '{self.config.name}' keeps state from batch to batch, and these records are no "
                "batch of its query: they would be counted by themselves",
                where="transform",
                hint="feeds with state take records from their query alone: no table for each topic, no backfill, no "
                "replay of dead letters",
            )
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
        decoding = self._decoding(spark, sink)
        schema = ReaderSchema(
            decoding.spec,
            policy=config.schema_.on_change,
            accept=config.schema_.accept,
            latest_id=decoding.latest_id,
            writer_schema=decoding.writer_schema,
            keeper=sink,
        )
        rows = RowBuilder(
            schema,
            policy=self.policy(),
            keep=kept_metadata(config),
            transform=self.transformed,
            streams=self.functions().streams,
            key=self._key(spark, source) if source is not None else None,
            is_decoded=source is None,
            check=check_query,
        )
        headers = "headers" in config.decode.metadata

        def reread(ranges: Sequence[OffsetRange]) -> DataFrame:
            return read_batch(spark, config.kafka, ranges=ranges, headers=headers)

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
            reread=reread if config.source.kafka and hands_over_records else None,
        )

    def _key(self, spark: SparkSession, source: NumberedSource) -> DecodeSpec | None:
        """What decodes the keys, if they are decoded."""
        return key_spec_of(spark, self.config.decode, source, accept=self.config.schema_.accept)

    def policy(self) -> Policy:
        """What becomes of records that are not as they should be."""
        return Policy(
            on_error="fail" if self.config.dead_letters is None else "dead_letter",
            on_null="keep" if tombstones_delete(self.config) else self.config.decode.on_null,
            on_bad_timestamp=self.config.decode.on_bad_timestamp,
            envelope=self.config.decode.envelope,
            deletes=delete_rule(self.config),
            expect=tuple(Expectation(name, each.rule, each.on_violation) for name, each in self.config.expect.items()),
        )

    def transformed(self, decoded_rows: DataFrame | Mapping[str, DataFrame]) -> DataFrame:
        """What the pipeline's transform makes of decoded rows, or of those of each stream that it joins."""
        return self.functions()(decoded_rows)

    def functions(self) -> Steps:
        """The transform, its Python functions loaded.

        Raises:
            ConfigError: one of them is not there, or does not take its options.
        """
        if self._steps is None:
            self._steps = Steps(self.config.transform, view=self.view, folder=self.folder)
        return self._steps

    def plan(self, spark: SparkSession) -> QueryPlan:
        """How the transform runs as a stream; looked at before anything is begun.

        Raises:
            ConfigError: it does not fit the rows, or Spark cannot run it as a stream.
        """
        if self._plan is None and not keeps_no_state(self.config):
            put_credentials(spark, self.config.decode)
            self._plan = self._planned(self.rows(self.read(spark)))
        return self._plan or QueryPlan()

    def ready(self, claim: Claim, *, begins: bool) -> Callable[[DataFrame], None]:
        """What looks at the frame of a query with state before anything is changed for it.

        Args:
            claim: where the state is noted that the query has.
            begins: whether it has none yet.
        """

        has_state = not begins

        def look(frame: DataFrame) -> None:
            nonlocal has_state
            plan = self._planned(frame)
            noted = tuple(claim.noted.state)
            if has_state:
                plan.require_same_state(noted, checkpoint=self.config.checkpoint)
            has_state = True  # Another schema, later in this run, meets what this one has begun.
            if plan.state != noted:
                claim.remember(state=plan.state)

        return look

    def _planned(self, frame: DataFrame) -> QueryPlan:
        return QueryPlan.of(frame, output_mode=self.config.output_mode, streams=len(self.functions().streams))

    def claim(self, spark: SparkSession) -> Claim:
        """The feed's hold on its checkpoint location.

        Raises:
            CheckpointMismatch: it is somebody else's.
        """
        return Claim(spark, self.config.checkpoint, Owner.of(self.config), transform=self.transform_id)

    @property
    def transform_id(self) -> str | None:
        """What the transform is known by: see ``lakefeed.records.transform.identity``."""
        return transform_id(self.config, folder=self.folder)

    def sink(self, spark: SparkSession, claim: Claim, *, note: Callable[[str], None] = lambda told: None) -> Sink:
        """Where rows go: the feed's own sink, or that and those beside it as one.

        Args:
            spark: the session.
            claim: the feed's checkpoint.
            note: told when one of several waits.

        Raises:
            ConfigError: the table's catalog is not declared, or there is no such class.
        """
        return self._sinks(spark).of_feed(claim, note=note)

    def table(self, spark: SparkSession) -> Table | None:
        """The feed's own sink, where it can tell how its shape would change: see ``SinkFactory.table``."""
        return self._sinks(spark).table(self.config.sink)

    def iceberg_table(self, spark: SparkSession) -> IcebergTable:
        """The feed's own sink, which is known to be an Iceberg table.

        Raises:
            ConfigError: its catalog is not declared.
        """
        table = self.table(spark)
        assert isinstance(table, IcebergTable)
        return table

    def _sinks(self, spark: SparkSession) -> SinkFactory:
        put_credentials(spark, self.config.decode)
        return SinkFactory(spark, self.config, self.connections, folder=self.folder)

    def dead_letters(self) -> DeadLetterReader:
        """The dead letters, to look at without Spark.

        Raises:
            ConfigError: the pipeline keeps none.
        """
        kept = self._kept
        if kept.table is not None:
            return TableReader(kept.table, connections=self.connections)
        return TopicReader(kept.topic or "", cluster=self.config.kafka)

    def dead_letter_store(self, spark: SparkSession) -> DeadLetterStore:
        """Where the dead letters are kept: to write them, replay them or drop them.

        Raises:
            ConfigError: the pipeline keeps none, or the table's catalog is not declared.
        """
        kept = self._kept
        if kept.table is not None:
            self.connections.catalog(catalog_of(kept.table))
            return DeadLetterTable(
                spark, kept.table, feed=self.config.name, records=lambda spans, of: self._again(spark, spans, of)
            )
        return DeadLetterTopic(spark, kept.topic or "", feed=self.config.name, source=self.config.kafka)

    def _again(self, spark: SparkSession, spans: Sequence[OffsetRange], of: OffsetRanges) -> DataFrame:
        """Some records of a commit, with their headers."""
        if self.config.source.kinesis is not None:
            return self.kinesis(spark, self.config.source.kinesis).read_batch(spans, of=of)
        return read_batch(spark, self.config.kafka, ranges=spans, headers=True)

    @property
    def _kept(self) -> DeadLetters:
        if self.config.dead_letters is None:
            raise ConfigError(
                f"pipeline '{self.config.name}' keeps no dead letters",
                hint="dead_letters: {table: catalog.namespace.table}, or {topic: name}",
            )
        return self.config.dead_letters

    def _decoding(self, spark: SparkSession, sink: RowSink | None = None) -> Decoding:
        if self._resolved is None:
            recorded = sink.recorded_schema() if sink is not None and self.config.decode.is_sampled else None
            sampled = recorded.schema if recorded else None
            source = self.config.source.numbered
            self._resolved = (
                Decoding(spec=Raw())
                if source is None
                else decoding_of(spark, self.config.decode, source, sampled=sampled, accept=self.config.schema_.accept)
            )
        return self._resolved
