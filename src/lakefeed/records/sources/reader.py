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
    """Reads one source in one session. Its class is called with the session and the completed settings.

    Attributes:
        has_new_leaders: whether a partition in the last ``identify`` has a new leader: discard records read ahead.
    """

    has_new_leaders: bool

    def read_stream(
        self, *, starting: Mapping[str, Mapping[int, int]] | None = None, marks: Mapping[Partition, str] | None = None
    ) -> DataFrame:
        """Return a streaming DataFrame of undecoded records with the columns of Spark's Kafka source.

        Args:
            starting: the first offsets by topic and partition, for a query without a checkpoint. Default: the start
                in the settings.
            marks: the source's own names for these positions, if it does not use numbers.
        """

    def read_batch(self, spans: Sequence[OffsetRange], *, of: OffsetRanges) -> DataFrame:
        """Return some records again, as a batch DataFrame with these columns; ``of`` are the ranges of their commit."""

    def describe(self, position: Position | None = None) -> dict[str, TopicDescription | None]:
        """Return the current ids and partitions of all topics, and whether records after ``position`` still exist.

        It is called when a run starts. A topic that does not exist is None.
        """

    def identify(self, ranges: OffsetRanges) -> OffsetRanges:
        """Return the ranges of a batch with the topics' ids, before the batch is written.

        Raises:
            RecordsLost: a topic was recreated since ``describe``; nothing of the batch is written.
        """


def open_reader(spark: SparkSession, settings: InstalledSource) -> SourceReader:
    """Return the reader of a source from another package."""
    reader: SourceReader = load(settings.reader, "the source's code")(spark, settings)
    return reader
