"""Turns the records of a feed into rows: decode, classify, transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from lakefeed.config.models import PipelineConfig
from lakefeed.config.upserts import kept_metadata, tombstones_delete
from lakefeed.lazy import DataFrame, SparkSession
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.columns import RowColumn, columns_of
from lakefeed.records.decode import RECORD, DecodeSpec, Raw, RecordPolicy, RowExpectation, classify, decoded, rows
from lakefeed.records.decode.changes import delete_rule
from lakefeed.records.decode.resolve import resolve_decoder
from lakefeed.records.decode.unavailable import Unavailable
from lakefeed.records.schema.fit import RowTransform, StorableRows
from lakefeed.records.schema.reader import ReaderSchema, StoredSchema
from lakefeed.records.spec import ResolvedDecoder
from lakefeed.records.transform import TransformSteps, split_by_topic
from lakefeed.sinks.definition import RoutesRows, RowSink


@dataclass(kw_only=True)
class RowBuilder:
    """Builds rows from records with the reader's schema of the feed, which may change between batches.

    Attributes:
        policy: decides whether a record becomes a row, is skipped, becomes a dead letter or stops the feed.
        keep: the metadata columns of the rows.
        transform: the steps from decoded rows to the sink's rows.
        streams: the topics that the transform reads separately, by their names in the transform.
        is_decoded: whether the source returns rows instead of records; then nothing is decoded or classified.
        check: raises an error if a query with state must not run.
        is_plain: whether there is no transform; then the table's columns are the records' fields.
        takes: by column, the table's type, if it allows fewer values than the rows' type: ``uuid``, ``fixed[4]``.
        isolated: by range, why its records made the current commit fail; these records become dead letters.
        columns: the columns of the newest rows, for the run's monitor.
    """

    schema: ReaderSchema
    policy: RecordPolicy = field(default_factory=RecordPolicy)
    keep: tuple[str, ...] = ()
    transform: RowTransform
    streams: Mapping[str, str] = field(default_factory=dict)
    is_decoded: bool = False
    check: Callable[[DataFrame], None] | None = None
    is_plain: bool = False
    takes: Mapping[str, str] = field(default_factory=dict)
    isolated: Mapping[OffsetRange, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._storable = StorableRows(self.transform)
        self.columns: tuple[RowColumn, ...] = ()
        self._columns_with: object = None

    def note_columns(self, rows: DataFrame) -> None:
        """Store the rows' columns for the monitor; Spark is asked only if the records' schema has changed."""
        if not self.columns or self._columns_with != self.schema.spec:
            self.columns = columns_of(rows.schema.jsonValue())
            self._columns_with = self.schema.spec

    @property
    def key(self) -> DecodeSpec | None:
        """The decoder of keys; None if keys stay bytes."""
        return self.schema.decoder.key

    def classify(self, records: DataFrame) -> DataFrame:
        """Decode the records with the current schema, and add the column ``RECORD`` with the verdicts."""
        refused = self.schema.refused_ids
        policy = replace(self.policy, refused_schemas=refused, isolated=self.isolated, takes=self.takes)
        return classify(decoded(records, self.schema.spec, key=self.key), policy, keep=self.keep)

    def rows(self, records: DataFrame) -> DataFrame:
        """Return rows whose records are not counted: read their columns, but do not write them."""
        rows = self._build(records, lambda part: self.classify(part).drop(RECORD))
        if self.check is not None:
            self.check(rows)
        return rows

    def accepted_rows(self, records: DataFrame, outcomes: BatchOutcomes) -> DataFrame:
        """Return the rows to write; ``outcomes`` counts their records while Spark computes the rows."""
        return self._build(records, lambda part: outcomes.accepted(self.classify(part)))

    def from_decoded(self, decoded_rows: DataFrame) -> DataFrame:
        """Return the rows to write from rows that are already decoded and counted."""
        return self._storable(decoded_rows)

    @contextmanager
    def counted(self, records: DataFrame, spark: SparkSession) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        """Yield the rows to write, and a new counter of their records."""
        with BatchOutcomes(spark) as outcomes:
            yield self.accepted_rows(records, outcomes), outcomes

    def notes(self) -> tuple[str, ...]:
        """Return the messages for the user since the last call."""
        return (*self.schema.notes(), *self._storable.notes())

    def _build(self, records: DataFrame, read: Callable[[DataFrame], DataFrame]) -> DataFrame:
        return self._storable(records if self.is_decoded else split_by_topic(records, self.streams, read))


@dataclass
class FeedDecoder:
    """Decodes the records of one feed; asks the registry for the reader's schema once."""

    config: PipelineConfig
    _resolved: ResolvedDecoder | None = None

    @cached_property
    def policy(self) -> RecordPolicy:
        config = self.config
        return RecordPolicy(
            on_error="fail" if config.dead_letters is None else "dead_letter",
            on_null="keep" if tombstones_delete(config) else config.decode.on_null,
            on_bad_timestamp=config.decode.on_bad_timestamp,
            envelope=config.decode.envelope,
            deletes=delete_rule(config),
            unavailable=Unavailable.of_records(config),
            expect=tuple(RowExpectation(name, rule.rule, rule.on_violation) for name, rule in config.expect.items()),
        )

    def row_builder(
        self,
        spark: SparkSession,
        sink: RowSink,
        transform: TransformSteps,
        *,
        check: Callable[[DataFrame], None] | None = None,
    ) -> RowBuilder:
        """Return the builder of the sink's rows, with the reader schema that the sink has stored."""
        config = self.config
        stored = sink.stored_schema() if config.decode.registry is not None or config.decode.is_sampled else None
        decoder = self._resolve(spark, stored)
        return RowBuilder(
            schema=ReaderSchema(
                decoder,
                policy=config.schema_.on_change,
                keeper=sink,
                stored=stored,
                on_encrypted=config.decode.on_encrypted,
            ),
            policy=replace(self.policy, rule=sink.refusal if isinstance(sink, RoutesRows) else None),
            keep=kept_metadata(config),
            transform=transform,
            streams=transform.streams,
            is_decoded=config.source.numbered is None,
            check=check,
            is_plain=config.transform is None,
        )

    def strict_rows(self, spark: SparkSession) -> Callable[[DataFrame], DataFrame]:
        """Return a function from records to decoded rows; an unreadable record makes Spark fail."""
        decoder, policy = self._resolve(spark), self.policy

        def read(records: DataFrame) -> DataFrame:
            return rows(
                decoded(records, decoder.spec, key=decoder.key),
                keep=kept_metadata(self.config),
                on_null="fail" if policy.on_null == "dead_letter" else policy.on_null,
                on_bad_timestamp=policy.on_bad_timestamp,
                envelope=policy.envelope,
                deletes=policy.deletes,
                unavailable=Unavailable.of_records(self.config) or Unavailable.of_sink(self.config),
            )

        return read

    def _resolve(self, spark: SparkSession, stored: StoredSchema | None = None) -> ResolvedDecoder:
        if self._resolved is None:
            config, source = self.config, self.config.source.numbered
            schema = stored.schema if stored else None
            self._resolved = (
                ResolvedDecoder(spec=Raw())
                if source is None
                else resolve_decoder(
                    spark,
                    config.decode,
                    source,
                    stored=schema,
                    accept=config.schema_.accept,
                    variants=config.has_variants,
                )
            )
        return self._resolved
