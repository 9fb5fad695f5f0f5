"""The protocol of a source from another package: see docs/extension-points.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.config.blocks import InstalledSource
from lakefeed.lazy import DataFrame, SparkSession
from lakefeed.ledger.feed_position import Position
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.plugins import load

__all__ = ["PartitionDescription", "Position", "SourceReader", "TopicDescription", "open_reader"]


class SourceReader(Protocol):
    """Reads one source in one session; the core creates it from the session and the validated settings."""

    has_new_leaders: bool
    """Whether ``identify`` has found a new leader: see ``SourceTopics``."""

    def read_stream(
        self, *, starting: Mapping[str, Mapping[int, int]] | None = None, marks: Mapping[Partition, str] | None = None
    ) -> DataFrame:
        """Return a streaming DataFrame of undecoded records with the columns of Spark's Kafka source.

        Args:
            starting: the first offsets by topic and partition, for a query without a checkpoint. Default: the start
                in the settings.
            marks: the source's own names for these offsets, such as sequence numbers.
        """

    def read_batch(self, spans: Sequence[OffsetRange], *, of: OffsetRanges) -> DataFrame:
        """Return records again as a batch DataFrame with the same columns; ``of`` has all ranges of the commit."""

    def describe(self, position: Position | None = None) -> dict[str, TopicDescription | None]:
        """Return, at the start of a run, ids and partitions of all topics; None for a topic that does not exist.

        If a partition's log was cut off before ``position``, its description has the offset of the cut.
        """

    def identify(self, ranges: OffsetRanges) -> OffsetRanges:
        """Add the topics' ids to the ranges of a batch, before the batch is written.

        Raises:
            RecordsLost: a topic was recreated since ``describe``, so the batch must not be written.
        """


def open_reader(spark: SparkSession, settings: InstalledSource) -> SourceReader:
    """Return the reader of a source from another package."""
    reader: SourceReader = load(settings.reader, "the source's code")(spark, settings)
    return reader
