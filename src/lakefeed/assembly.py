"""The parts of one feed, made out of its settings: what decodes, judges, transforms, lands and keeps dead letters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from lakefeed.commit.checkpoint import Claim, Owner
from lakefeed.config.connections import Connections
from lakefeed.config.failures import DeadLetters
from lakefeed.config.models import PipelineConfig
from lakefeed.config.names import catalog_of
from lakefeed.config.upserts import kept_metadata, tombstones_delete
from lakefeed.dead_letters.letters import TableReader
from lakefeed.dead_letters.place import DeadLetterPlace, DeadLetterReader
from lakefeed.dead_letters.table import DeadLetterTable
from lakefeed.dead_letters.topic import DeadLetterTopic
from lakefeed.dead_letters.topic_reader import TopicReader
from lakefeed.decode import Expectation, Policy, decoded, rows
from lakefeed.decode.deletes import delete_rule
from lakefeed.decode.resolve import Decoding, decoding_of, key_spec_of, put_credentials
from lakefeed.errors import ConfigError
from lakefeed.jdbc.table import JdbcTable
from lakefeed.kafka.source import read_stream
from lakefeed.landing import Landing, RowSink, Sink
from lakefeed.reading import BatchRead
from lakefeed.schema.reader import ReaderSchema
from lakefeed.sinks.iceberg import IcebergTable
from lakefeed.sinks.parquet import ParquetFiles
from lakefeed.sinks.upsert import UpsertTable
from lakefeed.transform import sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Assembly:
    """Makes the parts of a feed.

    Args:
        config: the pipeline; of one topic, where each has a table of its own.
        connections: store and catalogs.
        view: what the transform calls the decoded rows.

    Attributes:
        config: the pipeline.
        connections: store and catalogs.
        view: what the transform calls the decoded rows.
    """

    def __init__(self, config: PipelineConfig, *, connections: Connections, view: str) -> None:
        self.config = config
        self.connections = connections
        self.view = view
        self._resolved: Decoding | None = None

    def read(self, spark: SparkSession, *, starting: Mapping[str, Mapping[int, int]] | None = None) -> DataFrame:
        """The topics' records as a stream, undecoded.

        Args:
            spark: the session.
            starting: where a query without a checkpoint begins: see ``read_stream``.
        """
        return read_stream(
            spark, self.config.kafka, headers="headers" in self.config.decode.metadata, starting=starting
        )

    def batch_read(self) -> BatchRead:
        """How this pipeline reads records, to read some of them into something else than its sink."""
        return BatchRead(
            name=self.config.name,
            source=self.config.kafka,
            decode=self.config.decode,
            policy=self.policy(),
            on_change=self.config.schema_.on_change,
            transform=self.transformed,
        )

    def rows(self, records: DataFrame) -> DataFrame:
        """Records decoded and transformed, to look at: one that cannot be read stops it. Stream and batch alike."""
        policy = self.policy()
        return self.transformed(
            rows(
                decoded(records, self._decoding().spec, key=key_spec_of(self.config.decode, self.config.kafka)),
                keep=kept_metadata(self.config),
                on_null="fail" if policy.on_null == "dead_letter" else policy.on_null,
                envelope=policy.envelope,
                deletes=policy.deletes,
            )
        )

    def landing(
        self,
        spark: SparkSession,
        sink: Sink,
        records: DataFrame,
        *,
        fenced: bool = True,
        lost: Collection[tuple[str, int]] = (),
    ) -> Landing:
        """What lands the feed's batches, begun.

        Args:
            spark: the session.
            sink: where rows go.
            records: as they come from the source; only their columns count here.
            fenced: take the feed's fence. Not for work beside a driver that runs.
            lost: partitions whose records cannot be read again.
        """
        dead_letters = self.dead_letter_place(spark) if self.config.dead_letters is not None else None
        if dead_letters is not None:
            dead_letters.ensure()
        landing = self.landing_of(spark, sink, dead_letters)
        landing.begin(records, fenced=fenced, lost=lost)
        return landing

    def landing_of(self, spark: SparkSession, sink: RowSink, dead_letters: DeadLetterPlace | None) -> Landing:
        """The same, not begun: nothing is made or changed.

        Args:
            spark: the session.
            sink: where rows go, and what remembers the reader's schema.
            dead_letters: where dead letters go, if they are kept.
        """
        config = self.config
        decoding = self._decoding(sink)
        schema = ReaderSchema(
            decoding.spec,
            policy=config.schema_.on_change,
            latest_id=decoding.latest_id,
            writer_schema=decoding.writer_schema,
            keeper=sink,
        )
        return Landing(
            spark,
            feed=config.name,
            sink=sink,
            schema=schema,
            policy=self.policy(),
            keep=kept_metadata(config),
            transform=self.transformed,
            key=key_spec_of(config.decode, self.config.kafka),
            dead_letters=dead_letters,
            budget=config.dead_letters.budget if config.dead_letters else None,
        )

    def policy(self) -> Policy:
        """What becomes of records that are not as they should be."""
        return Policy(
            on_error="fail" if self.config.dead_letters is None else "dead_letter",
            on_null="keep" if tombstones_delete(self.config) else self.config.decode.on_null,
            envelope=self.config.decode.envelope,
            deletes=delete_rule(self.config),
            expect=tuple(Expectation(name, each.rule, each.on_violation) for name, each in self.config.expect.items()),
        )

    def transformed(self, decoded_rows: DataFrame) -> DataFrame:
        """What the pipeline's transform makes of decoded rows."""
        if self.config.transform is None:
            return decoded_rows
        return sql.select(decoded_rows, self.config.transform.sql, view=self.view)

    def claim(self, spark: SparkSession) -> Claim:
        """The feed's hold on its checkpoint location.

        Raises:
            CheckpointMismatch: it is somebody else's.
        """
        return Claim(spark, self.config.checkpoint, Owner.of(self.config))

    def sink(self, spark: SparkSession, claim: Claim) -> IcebergTable | ParquetFiles | JdbcTable:
        """Where rows go.

        Raises:
            ConfigError: the table's catalog is not declared.
        """
        sink = self.config.sink
        if sink.iceberg is not None:
            return self.iceberg_table(spark)
        if sink.jdbc is not None:
            put_credentials(spark, self.config.decode)
            evolves = self.config.schema_.on_change == "evolve"
            return JdbcTable(spark, sink.jdbc, feed=self.config.name, evolves=evolves)
        assert sink.parquet is not None  # The model holds exactly one kind.
        put_credentials(spark, self.config.decode)
        return ParquetFiles(spark, sink.parquet, claim)

    def iceberg_table(self, spark: SparkSession) -> IcebergTable:
        """The sink, where it is an Iceberg table.

        Raises:
            ConfigError: its catalog is not declared.
        """
        sink = self.config.sink.iceberg
        assert sink is not None
        put_credentials(spark, self.config.decode)
        self.connections.catalog(sink.catalog)
        if sink.history is not None:
            self.connections.catalog(catalog_of(sink.history))
        table = UpsertTable if sink.mode == "upsert" else IcebergTable
        return table(spark, sink, feed=self.config.name, evolves=self.config.schema_.on_change == "evolve")

    def dead_letters(self) -> DeadLetterReader:
        """The dead letters, to look at without Spark.

        Raises:
            ConfigError: the pipeline keeps none.
        """
        kept = self._kept
        if kept.table is not None:
            return TableReader(kept.table, connections=self.connections)
        return TopicReader(kept.topic or "", cluster=self.config.kafka)

    def dead_letter_place(self, spark: SparkSession) -> DeadLetterPlace:
        """Where the dead letters are kept: to write them, replay them or drop them.

        Raises:
            ConfigError: the pipeline keeps none, or the table's catalog is not declared.
        """
        kept = self._kept
        if kept.table is not None:
            self.connections.catalog(catalog_of(kept.table))
            return DeadLetterTable(spark, kept.table, feed=self.config.name, source=self.config.kafka)
        return DeadLetterTopic(spark, kept.topic or "", feed=self.config.name, source=self.config.kafka)

    @property
    def _kept(self) -> DeadLetters:
        if self.config.dead_letters is None:
            raise ConfigError(
                f"pipeline '{self.config.name}' keeps no dead letters",
                hint="dead_letters: {table: catalog.namespace.table}, or {topic: name}",
            )
        return self.config.dead_letters

    def _decoding(self, sink: RowSink | None = None) -> Decoding:
        if self._resolved is None:
            recorded = sink.recorded_schema() if sink is not None and self.config.decode.is_sampled else None
            sampled = recorded.schema if recorded else None
            self._resolved = decoding_of(self.config.decode, self.config.kafka, sampled=sampled)
        return self._resolved
