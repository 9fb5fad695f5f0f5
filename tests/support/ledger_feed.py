"""The operations of a feed without Kafka, whose sink keeps a ledger."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakefeed.config.connections import Connections
from lakefeed.config.transform import OutputMode
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.sinks.definition import RowSink, SinkContext

CHANGES = (
    "id BIGINT, city STRING, v STRING, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT, "
    "lakefeed_deleted BOOLEAN"
)
Change = tuple[int | None, str | None, str | None, int, int]
"""id, city, value (None for a delete), partition, offset"""


def frame_of(spark: SparkSession, changes: Iterable[Change], topic: str) -> DataFrame:
    """Return the rows of changes."""
    rows = [(key, city, value, topic, part, offset, value is None) for key, city, value, part, offset in changes]
    return spark.createDataFrame(rows, CHANGES)


@dataclass
class LedgerFeed:
    """The feed of one test.

    Attributes:
        spark: the session.
        name: the feed's name.
        batch: the number of the next batch.
        at: the start offset of the next batch.
        fence: the fence of the driver that started last.
    """

    spark: SparkSession
    name: str = field(default="shop", kw_only=True)
    batch: int = field(default=0, kw_only=True)
    at: int = field(default=0, kw_only=True)
    fence: str | None = field(default=None, kw_only=True)

    def context(self, *, groups: bool = False, evolves: bool = True) -> SinkContext:
        mode: OutputMode = "update" if groups else "append"
        return SinkContext(feed=self.name, place="sink", connections=Connections(), output_mode=mode, evolves=evolves)

    def changes(self, changes: Iterable[Change], topic: str = "topic") -> DataFrame:
        return frame_of(self.spark, changes, topic)

    def commit(self, records: int, **changes: Any) -> Commit:
        """Return the commit of the next batch."""
        given = {"topic_id": "id-one", "batch": self.batch, "start": self.at, **changes}
        ranges = OffsetRanges(
            (OffsetRange("topic", 0, given["start"], given["start"] + records),), {"topic": given["topic_id"]}
        )
        return Commit(self.name, given["batch"], ranges, fence=given.get("fence", self.fence))

    def land(self, sink: RowSink, rows: DataFrame, records: int = 10, **changes: Any) -> int | None:
        """Land the next batch."""
        commit = self.commit(records, **changes)
        landed = sink.land(rows, commit, commit_id=uuid.uuid4().hex)
        self.batch, self.at = commit.batch_id + 1, commit.ranges.ranges[0].end
        return landed
