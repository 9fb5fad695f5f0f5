"""A feed's table, and the operations of a feed on this table."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.snapshot_summary import COMMIT_ID, Backfill, Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges

FEED = "trips"


@dataclass
class Table:
    """The table of one test."""

    spark: SparkSession
    name: str

    def land(
        self,
        start: int,
        end: int,
        *,
        commit_id: str | None = None,
        spark: SparkSession | None = None,
        properties: Mapping[str, str] | None = None,
        ranges: OffsetRanges | None = None,
        fence: str | None = None,
        feed: str = FEED,
    ) -> None:
        """Append as many rows as the range has offsets, through the commit of the sink."""
        commit = Commit(feed, start, ranges or span(start, end), fence=fence)
        written = {**commit.properties(), COMMIT_ID: commit_id or uuid.uuid4().hex, **(properties or {})}
        self._append(start, end, written, spark or self.spark)

    def backfill(self, start: int, end: int, *, ranges: OffsetRanges | None = None, fence: str | None = None) -> None:
        """Append the rows of older offsets as a backfill."""
        commit = Backfill(FEED, ranges or span(start, end), fence)
        self._append(start, end, {**commit.properties(), COMMIT_ID: uuid.uuid4().hex}, self.spark)

    def move(self, start: int, to: int, *, delete: bool = False, fence: str | None = None) -> None:
        """Move the feed to another offset, through the ledger."""
        move = PositionReset("rewind" if to < start else "accepted-loss", {("topic", 0): (start, to)})
        self.commit_reset(
            Commit(FEED, 0, move.reaches(span(start, start)), fence, move=move), delete_from=to if delete else None
        )

    def commit_reset(self, commit: Commit, *, delete_from: int | None = None) -> None:
        where = None if delete_from is None else f"id >= {delete_from}"
        self.ledger().record_move(commit, commit_id=uuid.uuid4().hex, delete_where=where)

    @property
    def end(self) -> int:
        """The feed's end offset in the table."""
        position = self.ledger().position()
        return 0 if position is None else position.ranges.ends["topic", 0]

    def covered(self) -> tuple[tuple[int, int], ...] | None:
        position = self.ledger().position()
        return None if position is None or position.covered is None else position.covered.intervals["topic", 0]

    def _append(self, start: int, end: int, properties: Mapping[str, str], spark: SparkSession) -> None:
        writer = spark.range(start, end).coalesce(1).writeTo(self.name)
        for key, value in properties.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        writer.append()

    def plain(self, *ids: int) -> None:
        """Commit rows that belong to no feed."""
        self.spark.sql(f"INSERT INTO {self.name} VALUES {', '.join(f'({each})' for each in ids)}")

    def set_property(self, key: str, value: str) -> None:
        self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{key}'='{value}')")

    def ids(self) -> list[int]:
        return sorted(row.id for row in self.spark.table(self.name).collect())

    def head(self) -> int:
        return int(self.snapshots()[-1])

    def snapshots(self) -> list[int]:
        found = self.spark.sql(f"SELECT snapshot_id FROM {self.name}.snapshots ORDER BY committed_at").collect()
        return [row.snapshot_id for row in found]

    def call(self, procedure: str, arguments: str = "") -> None:
        catalog, _, name = self.name.partition(".")
        self.spark.sql(f"CALL {catalog}.system.{procedure}(table => '{name}'{arguments})").collect()

    def expire(self) -> None:
        """Expire all snapshots but the newest."""
        time.sleep(0.01)
        self.call("expire_snapshots", ", older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1")

    def ledger(self, feed: str = FEED) -> IcebergLedger:
        return IcebergLedger(self.spark, self.name, feed)

    def position(self) -> str | None:
        return self.ledger().properties().get(f"lakefeed.position.{FEED}")


def span(start: int, end: int, *, topic_id: str = "id-one", more: Sequence[OffsetRange] = ()) -> OffsetRanges:
    return OffsetRanges((OffsetRange("topic", 0, start, end), *more), {"topic": topic_id})


def refused(landing: Callable[[], None], because: str) -> None:
    """Check that the commit is refused for that reason."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    with pytest.raises((Py4JJavaError, PySparkException)) as raised:
        landing()
    assert "lakefeed refuses the commit" in str(raised.value)
    assert because in str(raised.value)
