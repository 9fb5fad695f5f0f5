"""Stores dead letters in a table: complete records that did not become rows, with their position and the reason.

Guarantee: exactly-once. The dead letters of a batch are one commit with the batch's offset ranges. This commit follows
the commit of the batch's rows, which has the number of dead letters. After a crash between the two commits, the next
start writes the letters. The writer reads only the letters' records from the source once more, so a batch without
letters costs nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.iceberg.sql import rows_where
from lakefeed.clients.iceberg.write_lock import run_in_turn
from lakefeed.clients.spark.statements import Statement, run
from lakefeed.config.connections import Connections
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.ledger.feed_position import StepBack, letters_ahead, step_back
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.snapshot_summary import BATCH_ID, COMMIT_ID, CONTINUITY, FEED, ROWS
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode import RECORD
from lakefeed.sinks.dead_letters.store import (
    RECORD_COLUMNS,
    Content,
    DeadLetterFilter,
    DeadLetterStore,
    Judge,
    RecentLetters,
    SourceCommit,
    group_recent,
    time_of,
    with_bad_timestamp,
)
from lakefeed.sinks.definition import TableChange
from lakefeed.sinks.iceberg.layout import carry_out, creation, require_dead_letters
from lakefeed.sinks.iceberg.table import with_summary

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import FileScanTask, Table


if TYPE_CHECKING:
    ReadAgain = Callable[[Sequence[OffsetRange], OffsetRanges], DataFrame]
    """A function that reads some records of a commit again; arguments: their ranges, and the commit's ranges."""

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


class TableReader:
    """Reads a dead-letter table without Spark."""

    kind = "table"

    def __init__(self, name: str, *, connections: Connections) -> None:
        self.name = name
        self._connections = connections

    def find(self, choice: DeadLetterFilter, *, whole: bool = False) -> list[dict[str, Any]]:
        from pyiceberg.expressions import And, EqualTo

        table = open_table(self.name, connections=self._connections)
        equal: Any = EqualTo  # mypy does not load the plugin that knows EqualTo's constructor.
        condition = reduce(And, (equal(name, value) for name, value in choice.exact().items()))
        rows = table.scan(row_filter=condition, selected_fields=("*",) if whole else SMALL).to_arrow()
        letters = [letter for letter in with_numbers(rows).to_pylist() if choice.means(letter["reason"])]
        for letter in letters:
            letter.update({name: time_of(letter[name]) for name in TIMES})
        return sorted(letters, key=lambda letter: (letter["topic"], letter["partition"], letter["offset"]))

    def recent(self, feed: str, *, most: int, samples: int, longest: int) -> RecentLetters:
        table = open_table(self.name, connections=self._connections)
        return read_recent(table, feed, most=most, samples=samples, longest=longest)


class DeadLetterTable(DeadLetterStore):
    """The dead letters of one feed, in a table that several feeds may share; ``records`` reads a commit's records."""

    def __init__(self, spark: SparkSession, table: str, *, feed: str, records: ReadAgain) -> None:
        self._spark = spark
        self._table = table
        self._feed = feed
        self._records = records
        self.ledger = IcebergLedger(spark, table, feed)

    def ensure(self) -> None:
        carry_out(self._spark, self.change())

    def change(self) -> TableChange:
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
                # Use small row groups: a dead letter may be large, and a reader needs only a few letters.
                "write.parquet.row-group-size-bytes": str(16 * 1024 * 1024),
            },
        )
        return TableChange(table=self._table, is_new=True, statements=statements)

    def complete(self, judge: Judge, commit: SourceCommit, *, spans: Sequence[OffsetRange], expected: int) -> bool:
        ledger = commit.properties()[FEED]
        last = IcebergLedger(self._spark, self._table, ledger).position()
        ends = {} if last is None else last.ranges.ends
        ranges = spans if ledger == self._feed else commit.ranges.ranges
        # As ``follow`` moves the letters' ledger with the feed, the ledger is behind only after a crash between the
        # commits of rows and letters.
        if all(ends.get(each.key, 0) >= each.end for each in ranges):
            return False
        self.write(judge, commit, spans=spans, expected=expected)
        return True

    def write(self, judge: Judge, commit: SourceCommit, *, spans: Sequence[OffsetRange], expected: int) -> None:
        record, reason = sf.col(f"{RECORD}.record"), sf.col(f"{RECORD}.reason")
        letters = (
            judge(self._records(spans, commit.ranges))
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
        known_by = commit.properties()
        properties = {
            **known_by,
            COMMIT_ID: f"{known_by[FEED]}-{known_by[BATCH_ID]}-dead-letters",
            CONTINUITY: "sparse",
            ROWS: str(expected),
        }
        with_summary(letters.writeTo(self._table), properties).append()

    def check(self, position: OffsetRanges | None, *, moved: bool) -> None:
        self._step_back(position, moved=moved)

    def follow(self, position: OffsetRanges | None, *, moved: bool) -> int:
        """Move the letters' ledger back to the feed's position; remove later letters, and return their number."""
        step = self._step_back(position, moved=moved)
        if step is None:
            return 0
        spans = rows_where(step.deleted, columns=("topic", "partition", "offset"))
        where = Statement.of(f"feed = :feed AND ({spans.sql})", {"feed": self._feed, **spans.values})
        count = self._sql(f"SELECT feed FROM IDENTIFIER(:letters) WHERE {where.sql}", **where.values).count()  # noqa: S608
        self.ledger.record_move(step.commit, commit_id=uuid.uuid4().hex, delete_where=where if count else None)
        return count

    def _step_back(self, position: OffsetRanges | None, *, moved: bool) -> StepBack | None:
        last = self.ledger.position() if self._spark.catalog.tableExists(self._table) else None
        if last is None:
            return None
        step = step_back(self._feed, last.ranges, position)
        if step is not None and not moved:
            raise letters_ahead(self._feed, where=self._table)
        return step

    def records(self, choice: DeadLetterFilter) -> DataFrame:
        return with_bad_timestamp(self._sql(f"SELECT * FROM IDENTIFIER(:letters) {CHOSEN}", **_arguments(choice)))  # noqa: S608

    def drop(self, choice: DeadLetterFilter) -> int:
        arguments = _arguments(choice)
        count = self._sql(f"SELECT replay FROM IDENTIFIER(:letters) {CHOSEN}", **arguments).count()  # noqa: S608
        self._change(f"DELETE FROM IDENTIFIER(:letters) {CHOSEN}", **arguments)  # noqa: S608
        return count

    def mark(self, positions: DataFrame, replay_id: str) -> None:
        positions.createOrReplaceTempView("lakefeed_replayed")
        self._change(
            "MERGE INTO IDENTIFIER(:letters) l USING lakefeed_replayed r "
            "ON l.feed = :feed AND l.topic = r.topic AND l.partition = r.partition AND l.offset = r.offset "
            "WHEN MATCHED AND l.replay IS NULL THEN UPDATE SET replay = :replay",
            replay=replay_id,
        )

    def judge_again(self, reasons: DataFrame) -> None:
        reasons.createOrReplaceTempView("lakefeed_judged")
        self._change(
            "MERGE INTO IDENTIFIER(:letters) l USING lakefeed_judged r "
            "ON l.feed = :feed AND l.topic = r.topic AND l.partition = r.partition AND l.offset = r.offset "
            "AND l.reason <> r.reason AND l.timestamp IS NOT NULL AND l.replay IS NULL "
            "WHEN MATCHED THEN UPDATE SET reason = r.reason"
        )

    def marked(self, replay_id: str) -> DataFrame:
        of_replay = "SELECT * FROM IDENTIFIER(:letters) WHERE feed = :feed AND replay = :replay"
        return with_bad_timestamp(self._sql(of_replay, replay=replay_id))

    def unmark(self, replay_id: str) -> None:
        update = "UPDATE IDENTIFIER(:letters) SET replay = NULL WHERE feed = :feed AND replay = :replay"
        self._change(update, replay=replay_id)

    def delete_marked(self, replay_id: str) -> None:
        self._change("DELETE FROM IDENTIFIER(:letters) WHERE feed = :feed AND replay = :replay", replay=replay_id)

    def open_replays(self) -> list[str]:
        open_ = "SELECT DISTINCT replay FROM IDENTIFIER(:letters) WHERE feed = :feed AND replay IS NOT NULL"
        return [row.replay for row in self._sql(open_).collect()]

    def _change(self, statement: str, **arguments: Any) -> None:
        run_in_turn(self._table, lambda: self._sql(statement, **arguments), ask_for_quiet=self.ledger.ask_for_quiet)

    def _sql(self, statement: str, **arguments: Any) -> DataFrame:
        return run(self._spark, statement, {"letters": self._table, "feed": self._feed, **arguments})


def _arguments(choice: DeadLetterFilter) -> dict[str, Any]:
    named = ("topic", "partition", "offset", "schema_id")
    requested, plain = choice.reasons()
    return {
        **{f"requested_{name}": getattr(choice, name) for name in named},
        "requested_reason": None if choice.reason is None else requested,
        "plain_reason": plain,
    }


TIMES = ("timestamp", "failed_at")
SMALL = ("topic", "partition", "offset", "timestamp", "reason", "schema_id", "batch_id", "failed_at", "replay")
"""All columns but those whose values may be large."""
POSITION = ("topic", "partition", "offset")
NEWEST = [(name, "descending") for name in ("failed_at", *POSITION)]


def read_recent(table: Table, feed: str, *, most: int, samples: int, longest: int) -> RecentLetters:
    """Return at most ``most`` of a feed's newest letters, grouped by reason: see ``DeadLetterReader.recent``."""
    import pyarrow.compute as pc
    from pyiceberg.expressions import And, EqualTo, Or

    equal: Any = EqualTo  # mypy does not load the plugin that knows EqualTo's constructor.
    of_feed = equal("feed", feed)
    tasks = list(table.scan(row_filter=of_feed).plan_files())
    chosen = _newest(table, tasks, most=most)
    small = _read(table, chosen, of_feed, SMALL)
    is_whole = len(chosen) == len(tasks) and small.num_rows <= most
    # One file may have millions of letters: limit their number in Arrow, before they become Python objects.
    letters: list[dict[str, Any]] = small.take(pc.sort_indices(small, sort_keys=NEWEST)[:most]).to_pylist()
    recent = group_recent(letters, samples=samples, is_whole=is_whole)
    sampled = [letter for _, _, of_reason in recent.reasons for letter in of_reason]
    if sampled:
        # Or(*at) builds a balanced tree: a chain with a node for each letter would be deeper than Python's stack.
        at = [And(*(equal(name, letter[name]) for name in POSITION)) for letter in sampled]
        samples_only = And(of_feed, Or(*at) if len(at) > 1 else at[0])
        content = {
            tuple(letter[name] for name in POSITION): (
                Content.of(letter["key"], longest),
                Content.of(letter["value"], longest),
            )
            for letter in _read(table, chosen, samples_only, (*POSITION, "key", "value")).to_pylist()
        }
        nothing = Content(None, 0), Content(None, 0)
        for letter in sampled:
            letter["content"] = content.get(tuple(letter[name] for name in POSITION), nothing)
    for letter in letters:
        letter.update({name: time_of(letter[name]) for name in TIMES})
    return recent


def _newest(table: Table, tasks: Sequence[FileScanTask], *, most: int) -> list[FileScanTask]:
    field = table.schema().find_field("failed_at").field_id

    def failed_at(task: FileScanTask) -> int:
        bound = task.file.upper_bounds.get(field) if task.file.upper_bounds else None
        # A file without bounds may have the newest letters.
        return int.from_bytes(bound, "little", signed=True) if bound else 2**63

    chosen: list[FileScanTask] = []
    count = 0
    for task in sorted(tasks, key=failed_at, reverse=True):
        if count >= most:
            break
        chosen.append(task)
        count += task.file.record_count
    return chosen


def _read(table: Table, tasks: Sequence[FileScanTask], rows: Any, columns: Sequence[str]) -> pa.Table:
    from pyiceberg.io.pyarrow import ArrowScan

    scan = ArrowScan(table.metadata, table.io, table.schema().select(*columns), rows)
    return with_numbers(scan.to_table(tasks))


def with_numbers(letters: pa.Table) -> pa.Table:
    """Return letters with times in microseconds, because Arrow cannot convert all times to dates."""
    import pyarrow as pa

    for name in TIMES:
        if name in letters.column_names:
            letters = letters.set_column(letters.column_names.index(name), name, letters[name].cast(pa.int64()))
    return letters
