"""Append each row of a batch to the table that a field names, with a ledger in each table and one for the feed.

Guarantee: exactly-once in each table. The tables' commits come first, the commit of the feed's ledger table comes last:

- A table's commit covers the offsets from the table's own last commit to the end of the batch. A table without rows in
a batch gets no commit, so its next commit covers several batches. The ledger table proves that no row of these batches
is missing: its commits have each table's number of rows.
- The feed resumes where the ledger table's last commit ended. If a driver dies between two tables' commits, or a
replaced driver commits late, some tables are ahead of the ledger table. The next start first writes a batch that ends
where these tables end. A table gets no row twice: the sink skips rows below the table's end offsets, and compares their
number with the table's commits.
- Only the ledger table has a fence. The tables need none: the catalog's compare-and-set requires that a commit begins
at the table's end offsets. So if two drivers write the same records to a table, one of them is refused.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace

from pyspark import StorageLevel

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.spark import statements
from lakefeed.clients.spark.jvm import spark_setting
from lakefeed.clients.spark.session import activate
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.keyed import POSITION_COLUMNS
from lakefeed.config.routes import LEDGER, own_name
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.lazy import Column, DataFrame, SparkSession, StructType, sf, t
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import Counts, RuleChanged, check_outcomes
from lakefeed.ledger.snapshot_summary import COMMIT_ID, COUNTS, ROUTED, ROWS, Commit, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRanges, Partition, by_topic
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.fit import find_field
from lakefeed.records.schema.reader import StoredSchema
from lakefeed.records.sources import RECORDS_PER_TASK
from lakefeed.sinks.definition import Changes
from lakefeed.sinks.iceberg.table import ADAPTIVE, CREATED_BY, IcebergTable
from lakefeed_routes.routes import TableRoutes

TARGET = "_lakefeed_table"
AT_ONCE = 4
"""The number of tables that are written at the same time."""


class RoutedTables(IcebergTable):
    """The ledger table of a feed, together with the tables of its rows.

    Attributes:
        refusal: the rule by which the core makes rows dead letters before it counts rows.
        rule: finds the table of each row.
    """

    def __init__(
        self,
        spark: SparkSession,
        sink: IcebergSinkConfig,
        *,
        feed: str,
        evolves: bool = True,
        takes_defaults: bool = False,
    ) -> None:
        by = sink.routed_by
        assert by is not None  # The core opens this sink only for a table name with a field.
        super().__init__(spark, IcebergSinkConfig(table=by.table(LEDGER)), feed=feed, evolves=False)
        self.rule = TableRoutes(by, sink.routes)
        self.refusal = self.rule.refusal
        self._of_tables = sink
        self._of_columns = {"evolves": evolves, "takes_defaults": takes_defaults}
        self._tables: dict[str, IcebergTable] = {}
        self._columns_known: tuple[StructType, StoredSchema | None, Sequence[Entry]] | None = None
        self._ready: set[str] = set()
        self._positions: dict[str, Position | None] = {}

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        self.rule.require_value(rows)
        if missing := [name for name in POSITION_COLUMNS if find_field(rows, name) is None]:
            what = f"the rows have no column {' and '.join(missing)}, by which a table skips rows that it has"
            raise ConfigError(what, where="sink.iceberg.table", hint=f"keep {', '.join(missing)} in the transform")
        return super().changes(t.StructType([t.StructField("feed", t.StringType())]), stored, entries)

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        super().apply_schema(rows, stored, entries)
        self._columns_known = (rows, stored, entries)
        self._ready = set()

    def take_fence(self, suffix: str = "", *, prefix: str = "") -> str:
        fence = super().take_fence(suffix, prefix=prefix)
        # Read the tables after taking the fence, because until then the replaced driver may commit.
        self._find_tables()
        return fence

    def _find_tables(self) -> None:
        """Find the tables of this feed in the catalog, and tables of these names that belong to others."""
        by, feed = self.rule.by, self._feed
        namespace = self.name.rpartition(".")[0]
        shown = statements.run(self._spark, f"SHOW TABLES IN {quoted(tuple(namespace.split('.')))}").collect()
        found = (own_name(f"{namespace}.{each['tableName']}", by.before, by.after) for each in shown)
        names = sorted({name for name in found if name is not None and name != LEDGER})
        with ThreadPoolExecutor(AT_ONCE, initializer=activate, initargs=(self._spark,)) as threads:
            owners = threads.map(lambda name: self._table(name).ledger.properties().get(CREATED_BY), names)
            for name, owner in zip(names, owners, strict=True):
                (self.rule.known if owner == feed else self.rule.foreign).add(name)
            known = sorted(self.rule.known)
            positions = threads.map(lambda name: self._table(name).ledger.position(), known)
            self._positions = dict(zip(known, positions, strict=True))
        self.rule.known.discard(self.rule.settings.default or "")

    def _table(self, name: str) -> IcebergTable:
        if name not in self._tables:
            table = self.rule.by.table(name)
            own = self._of_tables.model_copy(update={"table": table}).with_names_made([table])
            self._tables[name] = IcebergTable(self._spark, own, feed=self._feed, **self._of_columns)
        return self._tables[name]

    def interrupted_batch(self) -> tuple[OffsetRanges, int] | None:
        """Return the ranges and the number of a batch that only some tables have; None if there is no such batch."""
        last = self.ledger.position()
        starts = {} if last is None else last.ranges.ends
        ids = {} if last is None else dict(last.ranges.topic_ids)
        ends, first = dict(starts), dict[Partition, int]()
        for position in self._positions.values():
            ranges = OffsetRanges(()) if position is None else position.ranges
            if any(span.end > starts.get(span.key, span.start) for span in ranges.ranges):
                ids |= ranges.topic_ids
                for span in ranges.ranges:
                    ends[span.key] = max(span.end, ends.get(span.key, span.end))
                    first[span.key] = min(span.start, first.get(span.key, span.start))
        if not first:
            return None
        newest = next(self.ledger.commits(), None)
        return OffsetRanges.between({**first, **starts}, ends, ids), 0 if newest is None else newest.batch_id + 1

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Write the rows to their tables, and the batch to the ledger table last."""
        if not isinstance(commit, Commit):
            hint = "name one table for rows that are not a feed's batches"
            raise ConfigError("this sink accepts only the batches of a feed", where=self.name, hint=hint)
        named = rows.withColumn(TARGET, self.rule.target(rows)).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            named.count()
            check_outcomes(rows.sparkSession, commit_id)
            named = self._admit(named)
            routed = self._write(named, commit)
        finally:
            named.unpersist()
        self.ledger.land_empty({**commit.properties(), COMMIT_ID: commit_id, ROUTED: json.dumps(routed)})
        return sum(routed.values())

    def _admit(self, named: DataFrame) -> DataFrame:
        """Add the batch's new tables to the known tables; return the rows with a column of their table's name.

        Raises RuleChanged if records of the batch have to become dead letters.
        """
        rule = self.rule
        if rule.settings.default is None and not named.filter(sf.col(TARGET).isNull()).isEmpty():
            what = f"the transform changes {{{rule.by.field}}} so that its value names no table"
            hint = "write sink.iceberg.routes.default, a table for such rows"
            raise ConfigError(what, where="sink.iceberg.table", hint=hint)
        room = max(0, rule.settings.max_tables - len(rule.known))
        is_new = ~sf.col(TARGET).isin(*sorted(rule.known), rule.settings.default or "")
        new = named.filter(is_new).select(TARGET).distinct().orderBy(TARGET).limit(room + 1).collect()
        names = [str(each[TARGET]) for each in new]
        rule.known.update(names[:room])
        if len(names) <= room:
            return named
        if rule.settings.default is None:
            raise RuleChanged
        # The rows have the column with the value: find their tables again.
        return named.withColumn(TARGET, rule.target(named.drop(TARGET)))

    def _write(self, named: DataFrame, commit: Commit) -> dict[str, int]:
        """Write each table's rows in a separate commit; return the number of the batch's rows by table."""
        counts: dict[str, dict[Partition, int]] = defaultdict(dict)
        for name, topic, partition, count in named.groupBy(TARGET, *POSITION_COLUMNS[:2]).count().collect():
            counts[name][topic, partition] = count
        # If a table already has this batch, compare it with the batch, even if the rules now give the table no row.
        names = {*counts, *(name for name in self._positions if self._ahead(name, commit.ranges))}
        session = named.sparkSession
        with (
            spark_setting(session, *ADAPTIVE),
            ThreadPoolExecutor(AT_ONCE, initializer=activate, initargs=(session,)) as threads,
        ):
            list(threads.map(lambda name: self._write_one(name, counts.get(name, {}), named, commit), sorted(names)))
        return {name: sum(counts[name].values()) for name in sorted(counts)}

    def _write_one(self, name: str, counts: Mapping[Partition, int], named: DataFrame, commit: Commit) -> None:
        table = self._table(name)
        if name not in self._ready:
            assert self._columns_known is not None  # apply_schema is called before the first batch.
            table.apply_schema(*self._columns_known)
            self._ready.add(name)
        if name not in self._positions:
            self._positions[name] = table.ledger.position()
        last = self._ends(name)
        rows = named.filter(sf.col(TARGET) == name).drop(TARGET)
        if ahead := self._ahead(name, commit.ranges):
            left = rows.filter(_is_after(ahead))
            counts, before = _counts(left), sum(counts.values())
            self._require_same(table, commit.ranges, ahead, again=before - sum(counts.values()))
            rows = left
        if not counts:
            return
        spans = tuple(replace(span, start=last.get(span.key, span.start)) for span in commit.ranges.ranges)
        ranges = OffsetRanges(spans, commit.ranges.topic_ids)
        total = sum(counts.values())
        of_rows = {key: astuple(Counts(records=count)) for key, count in counts.items()}
        properties = {
            **Commit(self._feed, commit.batch_id, ranges).properties(),
            COMMIT_ID: uuid.uuid4().hex,
            COUNTS: json.dumps(by_topic(of_rows), separators=(",", ":")),
            ROWS: str(total),
        }
        self._positions.pop(name)
        table.append(rows.coalesce(-(-total // RECORDS_PER_TASK)), properties)
        self._positions[name] = Position(ranges, snapshot_id=0)

    def _ends(self, name: str) -> dict[Partition, int]:
        position = self._positions[name]
        return {} if position is None else position.ranges.ends

    def _ahead(self, name: str, ranges: OffsetRanges) -> dict[Partition, int]:
        """Return the end offsets of the table in the partitions where it already has records of these ranges."""
        ends = self._ends(name)
        return {span.key: ends[span.key] for span in ranges.ranges if ends.get(span.key, span.start) > span.start}

    def _require_same(
        self, table: IcebergTable, ranges: OffsetRanges, ahead: Mapping[Partition, int], *, again: int
    ) -> None:
        """Raise an error unless the table has ``again`` rows of the batch, the number that the rules give it now."""
        starts, ends = {span.key: span.start for span in ranges.ranges}, ranges.ends
        had = 0
        for each in table.ledger.commits():
            if not any(span.end > starts.get(span.key, span.end) for span in each.ranges.ranges):
                break
            had += each.rows
        if again == had and all(at <= ends[key] for key, at in ahead.items()):
            return
        raise CheckpointMismatch(
            f"the table has {had:,} rows of an interrupted batch, and {again:,} of its records are the table's now",
            where=table.name,
            hint="start the feed again; if the error stays, start it once with the interrupted run's file",
        )

    def try_rows(self, rows: DataFrame, commit: Commit) -> None:
        named = rows.withColumn(TARGET, self.rule.target(rows))
        for name in (each[TARGET] for each in named.select(TARGET).distinct().collect()):
            if name in self._ready:
                self._table(name).try_rows(named.filter(sf.col(TARGET) == name).drop(TARGET), commit)

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        move = commit.move
        if move is not None and (move.left_ids or any(to < start for start, to in move.positions.values())):
            what = "a feed with a table for each value of a field can skip lost records, but not begin a topic again"
            raise ConfigError(what, where=self.name, hint="give the feed another name and other tables")
        super().commit_reset(commit, commit_id=commit_id, delete_where=delete_where)


def _counts(rows: DataFrame) -> dict[Partition, int]:
    groups = rows.groupBy(*POSITION_COLUMNS[:2]).count().collect()
    return {(topic, partition): count for topic, partition, count in groups}


def _is_after(ends: Mapping[Partition, int]) -> Column:
    """Return the condition that a row's offset is at or after these offsets."""
    topic, partition, offset = (sf.col(name) for name in POSITION_COLUMNS)
    after = sf.lit(True)
    for (name, number), end in ends.items():
        after = after & ~((topic == name) & (partition == number) & (offset < end))
    return after
