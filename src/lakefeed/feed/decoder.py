"""Decodes the records of a feed, as its settings, the registry and the sink's remembered schema say."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from lakefeed.config.models import PipelineConfig
from lakefeed.config.upserts import kept_metadata, tombstones_delete
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.records.decode import DecodeSpec, Raw, RecordPolicy, RowExpectation, decoded, rows
from lakefeed.records.decode.deletes import delete_rule
from lakefeed.records.decode.resolve import ResolvedDecoder, key_spec_of, resolve_decoder
from lakefeed.records.schema.reader import ReaderSchema
from lakefeed.records.transform.steps import TransformSteps
from lakefeed.sinks.protocol import RowSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FeedDecoder:
    """The decoder of one feed. Asks the registry once, when it is first needed.

    Args:
        config: the pipeline.
    """

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        self._resolved: ResolvedDecoder | None = None

    @cached_property
    def policy(self) -> RecordPolicy:
        """When a record is a row, is skipped, is a dead letter or stops the feed."""
        config = self._config
        return RecordPolicy(
            on_error="fail" if config.dead_letters is None else "dead_letter",
            on_null="keep" if tombstones_delete(config) else config.decode.on_null,
            on_bad_timestamp=config.decode.on_bad_timestamp,
            envelope=config.decode.envelope,
            deletes=delete_rule(config),
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
        """Make what builds the rows that the sink gets.

        Args:
            spark: the session.
            sink: remembers the reader's schema.
            transform: from decoded rows to the sink's.
            check: looks at the frame of a query with state before anything is changed for it.
        """
        config = self._config
        decoding = self._resolve(spark, sink)
        schema = ReaderSchema(
            decoding.spec,
            policy=config.schema_.on_change,
            accept=config.schema_.accept,
            latest_id=decoding.latest_id,
            writer_schema=decoding.writer_schema,
            keeper=sink,
        )
        return RowBuilder(
            schema,
            policy=self.policy,
            keep=kept_metadata(config),
            transform=transform,
            streams=transform.streams,
            key=self._key(spark),
            is_decoded=config.source.numbered is None,
            check=check,
        )

    def strict_rows(self, spark: SparkSession) -> Callable[[DataFrame], DataFrame]:
        """Return a function from records to decoded rows; a record that cannot be read stops the read."""
        spec, key, policy = self._resolve(spark).spec, self._key(spark), self.policy

        def read(records: DataFrame) -> DataFrame:
            return rows(
                decoded(records, spec, key=key),
                keep=kept_metadata(self._config),
                on_null="fail" if policy.on_null == "dead_letter" else policy.on_null,
                on_bad_timestamp=policy.on_bad_timestamp,
                envelope=policy.envelope,
                deletes=policy.deletes,
            )

        return read

    def _key(self, spark: SparkSession) -> DecodeSpec | None:
        """Return how keys are encoded; None if they are not decoded."""
        source = self._config.source.numbered
        if source is None:
            return None
        return key_spec_of(spark, self._config.decode, source, accept=self._config.schema_.accept)

    def _resolve(self, spark: SparkSession, sink: RowSink | None = None) -> ResolvedDecoder:
        if self._resolved is None:
            config = self._config
            recorded = sink.stored_schema() if sink is not None and config.decode.is_sampled else None
            sampled = recorded.schema if recorded else None
            source = config.source.numbered
            self._resolved = (
                ResolvedDecoder(spec=Raw())
                if source is None
                else resolve_decoder(spark, config.decode, source, sampled=sampled, accept=config.schema_.accept)
            )
        return self._resolved
