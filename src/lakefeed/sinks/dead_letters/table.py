"""The dead-letter table: each record that did not become a row, whole, with its position and the reason.

Guarantee: exactly-once. The dead letters of a batch are one commit that carries the batch's offset ranges, right after
the commit of its rows, which says how many there must be; a crash between the two is made good at the next start.
They are read from the source again, and only where the batch had any: batches without dead letters pay nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.conflicts import run_in_turn
from lakefeed.clients.iceberg.sql import rows_where
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.snapshot_summary import BATCH_ID, COMMIT_ID, CONTINUITY, FEED, ROWS
from lakefeed.ledger.step_back import StepBack, letters_ahead, step_back
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode import RECORD
from lakefeed.sinks.dead_letters.filter import DeadLetterFilter
from lakefeed.sinks.dead_letters.store import RECORD_COLUMNS, SourceCommit, with_bad_timestamp
from lakefeed.sinks.iceberg.table_change import carry_out, creation
from lakefeed.sinks.protocol import TableChange
from lakefeed.sinks.table_kinds import require_dead_letters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    ReadAgain = Callable[[Sequence[OffsetRange], OffsetRanges], DataFrame]
    """Reads some records, of those that a commit is made of."""

COLUMNS = (
    "feed STRING, batch_id BIGINT, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, "
    "value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, reason STRING, schema_id INT, "
    "failed_at TIMESTAMP, replay STRING"
)
CHOSEN = """WHERE feed = :feed AND replay IS NULL
AND (:requested_topic IS NULL OR topic = :requested_topic)
AND (:requested_partition IS NULL OR partition = :requested_partition)
AND (:requested_offset IS NULL OR offset = :requested_offset)
AND (:requested_schema_id IS NULL OR schema_id = :requested_schema_id)
AND (:requested_reason IS NULL
  OR contains(reason, :requested_reason) OR contains(regexp_replace(reason, '[0-9]+', '#'), :requested_reason)
  OR contains(reason, :plain_reason) OR contains(regexp_replace(reason, '[0-9]+', '#'), :plain_reason))"""


class DeadLetterTable:
    """The dead letters of one feed, in a table that several feeds may share.

    Args:
        spark: the session.
        table: catalog.namespace.table
        feed: the feed's name.
        records: reads records of a commit again.
    """

    def __init__(self, spark: SparkSession, table: str, *, feed: str, records: ReadAgain) -> None:
        self._spark = spark
        self._table = table
        self._feed = feed
        self._records = records
        self.ledger = IcebergLedger(spark, table, feed)

    def ensure(self) -> None:
        """Creates the table if it is missing."""
        carry_out(self._spark, self.change())

    def change(self) -> TableChange:
        """What ``ensure`` does.

        Raises:
            ConfigError: there is such a table, and it is for something else.
        """
        if self._spark.catalog.tableExists(self._table):
            require_dead_letters(self._table, self._spark.table(self._table).columns)
            return TableChange(table=self._table, is_new=False)
        statements = creation(
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
        return TableChange(table=self._table, is_new=True, statements=statements)

    def complete(
        self,
        judge: Callable[[DataFrame], DataFrame],
        commit: SourceCommit,
        *,
        spans: Sequence[OffsetRange],
        expected: int,
    ) -> bool:
        """Writes the dead letters of the last commit, unless the table has them, one commit too; False then."""
        ledger = commit.properties()[FEED]
        last = IcebergLedger(self._spark, self._table, ledger).position()
        reached = {} if last is None else {(each.topic, each.partition): each.end for each in last.ranges.ranges}
        marks = spans if ledger == self._feed else commit.ranges.ranges
        # Behind it if a crash came between the two; at it, or moved back to it, if not.
        if all(reached.get((each.topic, each.partition), 0) >= each.end for each in marks):
            return False
        self.write(judge, commit, spans=spans, expected=expected)
        return True

    def write(
        self,
        judge: Callable[[DataFrame], DataFrame],
        commit: SourceCommit,
        *,
        spans: Sequence[OffsetRange],
        expected: int,
    ) -> None:
        """Appends the dead letters of a batch.

        Args:
            judge: decodes records and adds ``RECORD``, just as it was done for the batch's rows.
            commit: of the batch.
            spans: the offset ranges that hold its dead letters.
            expected: how many they are; the commit is refused if they are others.
        """
        from pyspark.sql import functions as sf

        records = self._records(spans, commit.ranges)
        record, reason = sf.col(f"{RECORD}.record"), sf.col(f"{RECORD}.reason")
        letters = (
            judge(records)
            .filter(reason.isNotNull())
            .select(
                sf.lit(commit.feed).alias("feed"),
                sf.lit(commit.batch_id).cast("bigint").alias("batch_id"),
                *(record[name].alias(name) for name in RECORD_COLUMNS),
                reason.alias("reason"),
                sf.col(f"{RECORD}.schema_id").alias("schema_id"),
                sf.current_timestamp().alias("failed_at"),
                sf.lit(None).cast("string").alias("replay"),
            )
        )
        writer = letters.writeTo(self._table)
        known_by = commit.properties()
        properties = {
            **known_by,
            COMMIT_ID: f"{known_by[FEED]}-{known_by[BATCH_ID]}-dead-letters",
            CONTINUITY: "sparse",
            ROWS: str(expected),
        }
        for key, value in properties.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        writer.append()

    def check(self, position: OffsetRanges | None, *, moved: bool) -> None:
        """Refuses letters that are ahead of a feed that was not moved."""
        self._step(position, moved=moved)

    def follow(self, position: OffsetRanges | None, *, moved: bool) -> int:
        """Takes the letters back that are of offsets past the feed's position, and the ledger with them."""
        step = self._step(position, moved=moved)
        if step is None:
            return 0
        condition = rows_where(step.deleted, columns=("topic", "partition", "offset"))
        where = f"feed = '{self._feed}' AND ({condition})"
        count = self._spark.table(self._table).filter(where).count()
        self.ledger.record_move(step.commit, commit_id=uuid.uuid4().hex, delete_where=where if count else None)
        return count

    def _step(self, position: OffsetRanges | None, *, moved: bool) -> StepBack | None:
        if not self._spark.catalog.tableExists(self._table):
            return None
        stands = self.ledger.position()
        if stands is None:
            return None
        step = step_back(self._feed, stands.ranges, position)
        if step is not None and not moved:
            raise letters_ahead(self._feed, where=self._table)
        return step

    def records(self, choice: DeadLetterFilter) -> DataFrame:
        """The unmarked letters that are meant, as the records that they were."""
        chosen = self._sql(f"SELECT * FROM IDENTIFIER(:letters) {CHOSEN}", **_arguments(choice))  # noqa: S608
        return with_bad_timestamp(chosen)

    def drop(self, choice: DeadLetterFilter) -> int:
        """Deletes the unmarked letters that are meant; returns how many."""
        count = self._sql(f"SELECT replay FROM IDENTIFIER(:letters) {CHOSEN}", **_arguments(choice)).count()  # noqa: S608
        self._change(f"DELETE FROM IDENTIFIER(:letters) {CHOSEN}", **_arguments(choice))  # noqa: S608
        return count

    def mark(self, positions: DataFrame, replay_id: str) -> None:
        """Marks the letters at these (topic, partition, offset), in one commit."""
        positions.createOrReplaceTempView("lakefeed_replayed")
        self._change(
            "MERGE INTO IDENTIFIER(:letters) l USING lakefeed_replayed r "
            "ON l.feed = :feed AND l.topic = r.topic AND l.partition = r.partition AND l.offset = r.offset "
            "WHEN MATCHED AND l.replay IS NULL THEN UPDATE SET replay = :replay",
            replay=replay_id,
        )

    def marked(self, replay_id: str) -> DataFrame:
        """The records of one replay."""
        from pyspark.sql import functions as sf

        return with_bad_timestamp(self._of_feed().filter(sf.col("replay") == replay_id))

    def unmark(self, replay_id: str) -> None:
        """Takes a replay's marks away."""
        self._change(
            "UPDATE IDENTIFIER(:letters) SET replay = NULL WHERE feed = :feed AND replay = :replay", replay=replay_id
        )

    def delete_marked(self, replay_id: str) -> None:
        """Deletes the letters of one replay."""
        self._change("DELETE FROM IDENTIFIER(:letters) WHERE feed = :feed AND replay = :replay", replay=replay_id)

    def open_replays(self) -> list[str]:
        """Ids of the replays whose marks are still there."""
        open_ = self._of_feed().filter("replay IS NOT NULL").select("replay").distinct()
        return [row.replay for row in open_.collect()]

    def _of_feed(self) -> DataFrame:
        from pyspark.sql import functions as sf

        return self._spark.table(self._table).filter(sf.col("feed") == self._feed)

    def _change(self, statement: str, **arguments: Any) -> None:
        run_in_turn(self._table, lambda: self._sql(statement, **arguments), ask_for_quiet=self.ledger.ask_for_quiet)

    def _sql(self, statement: str, **arguments: Any) -> DataFrame:
        return self._spark.sql(statement, args={"letters": self._table, "feed": self._feed, **arguments})


def _arguments(choice: DeadLetterFilter) -> dict[str, Any]:
    named = ("topic", "partition", "offset", "schema_id")
    requested, plain = choice.reasons()
    return {
        **{f"requested_{name}": getattr(choice, name) for name in named},
        "requested_reason": None if choice.reason is None else requested,
        "plain_reason": plain,
    }
