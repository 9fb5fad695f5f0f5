"""The dead-letter table: each record that did not become a row, whole, with its position and the reason.

Guarantee: exactly-once. The dead letters of a batch are one commit that carries the batch's offset ranges, right after
the commit of its rows, which says how many there must be; a crash between the two is made good at the next start.
They are read from Kafka again, and only where the batch had any: batches without dead letters pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lakefeed.commit.ledger import COMMIT_ID, CONTINUITY, ROWS, Commit, Ledger
from lakefeed.commit.ranges import OffsetRange
from lakefeed.config.models import KafkaSource
from lakefeed.decode import RECORD
from lakefeed.kafka.source import read_batch
from lakefeed.sinks.iceberg import create_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "feed STRING, batch_id BIGINT, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, "
    "value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, reason STRING, schema_id INT, "
    "failed_at TIMESTAMP, replay STRING"
)


class DeadLetterTable:
    """The dead letters of one feed, in a table that several feeds may share.

    Args:
        spark: the session.
        table: catalog.namespace.table
        feed: the feed's name.
        source: where the records are read again.
    """

    def __init__(self, spark: SparkSession, table: str, *, feed: str, source: KafkaSource) -> None:
        self._spark = spark
        self._table = table
        self._source = source
        self.ledger = Ledger(spark, table, feed)

    def ensure(self) -> None:
        """Creates the table if it is missing."""
        if not self._spark.catalog.tableExists(self._table):
            create_table(
                self._spark,
                self._table,
                columns=COLUMNS,
                partitioned_by="feed",
                properties={
                    "write.delete.mode": "merge-on-read",
                    "write.update.mode": "merge-on-read",
                    # A dead letter may be large, and few are read together.
                    "write.parquet.row-group-size-bytes": str(16 * 1024 * 1024),
                },
            )

    def has(self, commit: Commit) -> bool:
        """Whether the dead letters of these offset ranges are in the table."""
        last = self.ledger.last()
        return last is not None and last.ranges == commit.ranges

    def write(
        self, judge: Callable[[DataFrame], DataFrame], commit: Commit, *, spans: Sequence[OffsetRange], expected: int
    ) -> None:
        """Appends the dead letters of a batch.

        Args:
            judge: decodes records and adds ``RECORD``, just as it was done for the batch's rows.
            commit: of the batch.
            spans: the offset ranges that hold its dead letters.
            expected: how many they are; the commit is refused if they are others.
        """
        from pyspark.sql import functions as sf

        records = read_batch(self._spark, self._source, ranges=spans, headers=True)
        record, reason = sf.col(f"{RECORD}.record"), sf.col(f"{RECORD}.reason")
        letters = (
            judge(records)
            .filter(reason.isNotNull())
            .select(
                sf.lit(commit.feed).alias("feed"),
                sf.lit(commit.batch_id).cast("bigint").alias("batch_id"),
                *(
                    record[name].alias(name)
                    for name in ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
                ),
                reason.alias("reason"),
                sf.col(f"{RECORD}.schema_id").alias("schema_id"),
                sf.current_timestamp().alias("failed_at"),
                sf.lit(None).cast("string").alias("replay"),
            )
        )
        writer = letters.writeTo(self._table)
        properties = {
            **commit.properties(),
            COMMIT_ID: f"{commit.feed}-{commit.batch_id}-dead-letters",
            CONTINUITY: "sparse",
            ROWS: str(expected),
        }
        for key, value in properties.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        writer.append()
