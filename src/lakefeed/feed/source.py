"""Reads the records of a feed's source: as a stream, or those of some offsets again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.config.connections import Connections
from lakefeed.config.kinesis import KinesisSource
from lakefeed.config.models import PipelineConfig
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.records.sources.kafka import SourceTopics, mark_copies, read_batch, read_stream
from lakefeed.records.sources.kinesis import KinesisStream
from lakefeed.records.sources.rows import read_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class FeedSource:
    """The source of one feed.

    Attributes:
        config: the pipeline.
        connections: how Kinesis is reached.
    """

    config: PipelineConfig
    connections: Connections

    @property
    def keeps_headers(self) -> bool:
        """Whether the rows have the records' headers."""
        return "headers" in self.config.decode.metadata

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

        Args:
            spark: the session.
            starting: where a query without a checkpoint begins: see ``lakefeed.records.sources.kafka.read_stream``.
            marks: the source's own names for these positions, if it has any.
            gather: wait for ``min_records_per_batch``.
            bounded: keep to ``max_records_per_batch``.
        """
        source = self.config.source
        if source.kinesis is not None:
            return self._kinesis(spark, source.kinesis).read_stream(starting=starting, marks=marks)
        if source.kafka is None:
            return read_rows(spark, source)
        headers = self.keeps_headers or source.kafka.deduplicate
        return self._without_duplicates(
            read_stream(spark, source.kafka, headers=headers, starting=starting, gather=gather, bounded=bounded)
        )

    def read_batch(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Read the records of these offsets of Kafka as a stream would; duplicates among them are marked."""
        kafka = self.config.kafka
        headers = self.keeps_headers or kafka.deduplicate
        return self._without_duplicates(read_batch(spark, kafka, ranges=ranges, headers=headers))

    def reread(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Read the records of these offsets of Kafka again, every one of them."""
        return read_batch(spark, self.config.kafka, ranges=ranges, headers=self.keeps_headers)

    def reread_with_headers(self, spark: SparkSession, spans: Sequence[OffsetRange], of: OffsetRanges) -> DataFrame:
        """Read some records of a commit again, for its dead letters.

        Args:
            spark: the session.
            spans: the offsets.
            of: the commit's.
        """
        if self.config.source.kinesis is not None:
            return self._kinesis(spark, self.config.source.kinesis).read_batch(spans, of=of)
        return read_batch(spark, self.config.kafka, ranges=spans, headers=True)

    def topics(self, spark: SparkSession) -> SourceTopics | KinesisStream | None:
        """Return what describes the topics, or the stream, of this moment; None for a source without offsets."""
        kafka, kinesis = self.config.source.kafka, self.config.source.kinesis
        if kinesis is not None:
            return self._kinesis(spark, kinesis)
        return SourceTopics(kafka) if kafka is not None else None

    def _kinesis(self, spark: SparkSession, source: KinesisSource) -> KinesisStream:
        return KinesisStream(spark, source, self.connections.kinesis or source)

    def _without_duplicates(self, records: DataFrame) -> DataFrame:
        """Mark duplicates, if the pipeline says so: they are skipped, and counted."""
        if not self.config.kafka.deduplicate:
            return records
        found = mark_copies(records)
        return found if self.keeps_headers else found.drop("headers")
