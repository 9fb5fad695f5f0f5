"""The protocol of a source of another package: see docs/extension-points.md."""

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
    """Reads one source in one session. Its class is called with the session and the settings, completed.

    Attributes:
        has_new_leaders: whether what was read ahead of a partition that ``identify`` saw last must not be used.
    """

    has_new_leaders: bool

    def read_stream(
        self, *, starting: Mapping[str, Mapping[int, int]] | None = None, marks: Mapping[Partition, str] | None = None
    ) -> DataFrame:
        """Read the records as a streaming DataFrame with the columns of Spark's Kafka source, undecoded.

        Args:
            starting: the first offset of each partition, by topic, for a query without a checkpoint. Default: where
                the settings say.
            marks: the source's own names for these positions, where it does not know them by a number.
        """

    def read_batch(self, spans: Sequence[OffsetRange], *, of: OffsetRanges) -> DataFrame:
        """Read some records again, as a batch DataFrame with these columns; ``of`` are the ranges of their commit."""

    def describe(self, position: Position | None = None) -> dict[str, TopicDescription | None]:
        """Describe each topic now, with its id, its partitions, and whether those still have the records after it.

        It is called as a run starts. A topic that does not exist is None.
        """

    def identify(self, ranges: OffsetRanges) -> OffsetRanges:
        """Add the topics' ids to the ranges of a batch that is about to be written.

        Raises:
            RecordsLost: a topic was recreated since it was described; nothing of the batch is written.
        """


def open_reader(spark: SparkSession, settings: InstalledSource) -> SourceReader:
    """Return what reads a source of another package."""
    reader: SourceReader = load(settings.reader, "the source's code")(spark, settings)
    return reader
