"""Finds the newest change of each key in a micro-batch, checks the changes, and builds the MERGE that writes them.

A batch is shuffled by its keys once (``shuffle_by_key``). Later steps, such as the MERGE, read the files of that
shuffle: Spark decodes no record twice, needs no cache, and joins by the keys without another shuffle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Literal

from lakefeed.clients.iceberg.sql import quoted, quoted_table
from lakefeed.clients.spark.jvm import java, kept_rows
from lakefeed.config.keyed import DELETED, POSITION_COLUMNS
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.lazy import Column, DataFrame, DataType, SparkSession, sf, t
from lakefeed.ledger.snapshot_summary import Backfill, Commit, SnapshotProperties, Upserts
from lakefeed.records.schema.fit import find_field
from lakefeed.sinks.kept_values import KeptValues

TOPIC, PARTITION, OFFSET = POSITION_COLUMNS
KEY_MOVED = "lakefeed: a key has changes in more than one partition"
"""How the MERGE's error begins if offsets do not show which of a key's changes is newer."""

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_RANK, _OF_KEY = "_lakefeed_rank", "_lakefeed_of_key"

ROWS_A_TASK, BYTES_A_TASK, STORED_ROWS_A_TASK = 20_000, 32 << 20, 500_000
"""A batch gets a task for every ``ROWS_A_TASK`` changes, up to the number of cores. The batch gets more tasks only
where a task would have more than ``BYTES_A_TASK`` of changes, or more than ``STORED_ROWS_A_TASK`` rows of the
table."""


def deleting(changes: DataFrame) -> DataFrame:
    """Return the rows with false instead of null in the column that marks deletes: a transform may compute null."""
    marking = find_field(changes.schema, DELETED)
    if marking is not None and not marking.nullable:
        return changes
    return changes.withColumn(DELETED, sf.coalesce(sf.col(DELETED), sf.lit(False)))


def counted_groups(groups: DataFrame, *, keys: Sequence[str], where: str, kind: str) -> int:
    """Return the number of rows in a batch of groups; raise an error if two rows have the same key."""
    of_key = groups.groupBy(*(sf.col(name(key)) for key in keys)).agg(sf.count(sf.lit(1)).alias(_OF_KEY))
    [row] = of_key.agg(sf.coalesce(sf.sum(_OF_KEY), sf.lit(0)).alias("rows"), sf.max(_OF_KEY).alias("most")).collect()
    if (row["most"] or 0) > 1:
        raise ConfigError(
            f"a batch has {row['most']} rows with the same {', '.join(keys)}: the transform groups by more columns",
            where=where,
            hint=f"set sink.{kind}.keys to all columns of the GROUP BY",
        )
    return int(row["rows"])


def shuffle_by_key(changes: DataFrame, *, keys: Sequence[str], partitions: int) -> DataFrame:
    """Return the changes, shuffled so that all changes of a key are in the same partition."""
    return kept_rows(changes.repartition(partitions, *(sf.col(name(key)) for key in keys)))


def partitions_for(changes: DataFrame, commit: SnapshotProperties) -> int:
    """Return the number of partitions for a batch's shuffle, from its records and Spark's estimate of a row's size."""
    own: Any = changes
    most = shuffle_limit(changes.sparkSession)
    if not isinstance(commit, Commit | Backfill):
        return most
    records, row_bytes = commit.ranges.records, int(own._jdf.schema().defaultSize())
    busy = min(changes.sparkSession.sparkContext.defaultParallelism, -(-records // ROWS_A_TASK))
    return max(1, min(most, max(busy, -(-records * row_bytes // BYTES_A_TASK))))


def shuffle_limit(session: SparkSession) -> int:
    return int(str(session.conf.get(SHUFFLE_PARTITIONS)))


def latest_per_key(
    changes: DataFrame, *, keys: Sequence[str], order_by: Sequence[str], kept: KeptValues | None = None
) -> DataFrame:
    """Return each key's newest change, completed by values of its older changes, with the column ``KEPT``."""
    from pyspark.sql import Window

    of_key = Window.partitionBy(*(sf.col(name(key)) for key in keys))
    newest_first = of_key.orderBy(*(sf.col(name(each)).desc_nulls_last() for each in _order(order_by)))
    values = kept.newest(newest_first) if kept else {}
    ranked = changes.withColumns({_RANK: sf.row_number().over(newest_first), **values})
    latest = ranked.filter(sf.col(_RANK) == 1).drop(_RANK)
    return kept.folded(latest) if kept else latest


def _order(order_by: Sequence[str]) -> Sequence[str]:
    # If the values of order_by are equal, the record's position decides: the result must not depend on the order of
    # arrival.
    return (*order_by, *POSITION_COLUMNS) if order_by else (OFFSET,)


@dataclass(frozen=True)
class ChangeSummary:
    """The counts and faults of a batch's changes, found before any change is written.

    Attributes:
        bounds: the ``KeyBounds`` of the JVM module.
        without_key: the position of a change without a key, for an error.
        moved: the position of the first change of a key with changes in several partitions, for an error.
    """

    upserts: Upserts
    bounds: Any
    without_key: str | None
    moved: str | None

    def check(self, *, keys: Sequence[str], table: str, orders: bool = True) -> None:
        """Raise an error for a change without a key, or for changes of a key in several partitions.

        ``orders`` says whether the sink has the option ``order_by``.
        """
        if self.without_key is not None:
            raise ConfigError(
                f"a change has no key: {' or '.join(keys)} is null",
                where=f"table {table}; {self.without_key}",
                hint="for tombstones, set decode.key, which decodes the record's key; for other records, make them "
                f"dead letters: expect: {{has_key: {{rule: {keys[0]} IS NOT NULL, on_violation: dead_letter}}}}",
            )
        if self.moved is not None:
            raise key_moved(table, self.moved, orders=orders)


def summarize_changes(
    changes: DataFrame, *, keys: Sequence[str], order_by: Sequence[str], bounded: Sequence[str] = ()
) -> ChangeSummary:
    """Return the counts of the changes of ``shuffle_by_key``, and the bounds of the ``bounded`` keys, in one pass."""
    own = [sf.col(name(key)).alias(f"key_{at}") for at, key in enumerate(keys)]
    order = [sf.col(name(each)) for each in _order(order_by)]
    # Compare hashes of positions instead of structs: to aggregate numbers, Spark need not sort the rows.
    place = sf.xxhash64(TOPIC, PARTITION)
    of_key = changes.groupBy(*own).agg(
        sf.count(sf.lit(1)).alias("changes"),
        sf.max_by(DELETED, order[0] if len(order) == 1 else sf.struct(*order)).alias("deleted"),
        (sf.min(place) != sf.max(place)).alias("moved"),
    )
    counts = sf.struct(
        sf.coalesce(sf.sum("changes"), sf.lit(0)).alias("changes"),
        sf.count(sf.lit(1)).alias("keys"),
        sf.count_if("deleted").alias("deletes"),
        sf.count_if(_any_null([f"key_{at}" for at in range(len(keys))])).alias("without_key"),
        sf.count_if("moved").alias("moved"),
    )
    types = {key: changes.schema[key].dataType for key in bounded}
    ends = [end for key in bounded for end in _ends(f"key_{keys.index(key)}", types[key])]
    one_row: Any = of_key.agg(sf.to_json(counts), *ends)
    bounds = java(changes.sparkSession).query.KeyBounds.of(one_row._jdf, list(bounded))
    summed = json.loads(str(bounds.text()))
    upserts = Upserts(summed["changes"], summed["keys"], summed["deletes"])
    without_key = _first_place(changes.filter(_any_null(map(name, keys)))) if summed["without_key"] else None
    moved = None
    if summed["moved"] and not order_by:
        partition = sf.struct(TOPIC, PARTITION)
        of_key = changes.groupBy(*(sf.col(name(key)).alias(f"key_{at}") for at, key in enumerate(keys))).agg(
            (sf.min(partition) != sf.max(partition)).alias("moved"), sf.min(sf.struct(*POSITION_COLUMNS)).alias("first")
        )
        moved = _first_place(of_key.filter("moved").select("first.*"))
    return ChangeSummary(upserts, bounds, without_key, moved)


def _any_null(columns: Iterable[str]) -> Column:
    return reduce(or_, (sf.col(column).isNull() for column in columns))


def _first_place(changes: DataFrame) -> str | None:
    [[place]] = changes.agg(sf.min(sf.struct(*POSITION_COLUMNS))).collect()
    return None if place is None else f"topic {place[TOPIC]}, partition {place[PARTITION]}, offset {place[OFFSET]}"


def key_moved(table: str, message: str | None = None, *, orders: bool = True) -> ConfigError:
    """Return the error for a key whose changes cannot be ordered by offsets."""
    return ConfigError(
        KEY_MOVED.removeprefix("lakefeed: ") + ", so offsets do not show which change is newer",
        where=f"table {table}{f'; {message}' if message else ''}",
        hint="new partitions of the topic, or a producer's partitioner, move keys: "
        + (
            "name a column that orders the changes, such as order_by: [kafka_timestamp], with on_delete: mark"
            if orders
            else "write to a new index, or to a table, which can order changes by a column"
        ),
    )


def topic_recreated(topic: str, *, where: str, undo: str) -> CheckpointMismatch:
    """Return the error for offsets of a recreated topic; ``undo`` is the statement that removes the old topic's id."""
    what = "its offsets do not show whether a change is newer than a row from the old topic"
    return CheckpointMismatch(
        f"topic {topic} was recreated: {what}",
        where=where,
        hint=f"set {OFFSET} to NULL in all rows, so that every new change is newer; then {undo}",
    )


def has_bounds(type_: DataType, stored: str) -> bool:
    """Return whether Iceberg and Spark order a column's values alike; ``stored`` is the column's type in Iceberg."""
    whole = t.ByteType, t.ShortType, t.IntegerType, t.LongType
    ordered = (*whole, t.DecimalType, t.DateType, t.TimestampType, t.TimestampNTZType, t.StringType)
    return isinstance(type_, ordered) and stored != "uuid"  # Spark reads UUIDs as strings, which it orders differently.


def _ends(key: str, type_: DataType) -> tuple[Column, Column]:
    """Return the smallest and the greatest value of a key column; null if a text in the column is not ASCII.

    Iceberg decodes the bounds of its files as UTF-8. If a bound is not UTF-8, only ASCII texts compare correctly.
    """
    is_ascii = sf.is_valid_utf8(key) & (sf.octet_length(key) == sf.char_length(key))
    known = sf.bool_and(is_ascii) if isinstance(type_, t.StringType) else sf.lit(True)
    return sf.when(known, sf.min(key)), sf.when(known, sf.max(key))


def upsert_sql(
    table: str,
    source: str,
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    order_by: Sequence[str] = (),
    on_delete: Literal["remove", "mark"] = "remove",
    kept: KeptValues | None = None,
) -> str:
    """Return the MERGE that writes the newest change of each key. To run it a second time changes nothing.

    ``source`` is a view with the table's columns and ``lakefeed_deleted``, one row for each key. ``order_by`` names the
    columns that decide which change is newer; without these columns, the offset decides.
    """
    where = [f"t.{name(key)} = s.{name(key)}" for key in keys]
    newer, removes = _newer(order_by), on_delete == "remove"
    deletes = [f"WHEN MATCHED AND s.{DELETED} AND {newer} THEN DELETE"] if removes else []
    updates = f"WHEN MATCHED AND {newer} THEN {update_sql(columns, kept, marks=not removes)}"
    inserts = f"AND NOT s.{DELETED} " if removes else ""
    return merge_sql(table, source, *deletes, updates, on=where, columns=columns, inserts=inserts)


def _newer(order_by: Sequence[str]) -> str:
    """Return the SQL condition that a change is newer than the table's row; a row without an offset is always older."""
    if order_by:
        order = _order(order_by)
        return f"{_struct('s', order)} > {_struct('t', order)}"
    return (
        f"(t.{OFFSET} IS NULL OR CASE WHEN s.{TOPIC} = t.{TOPIC} AND s.{PARTITION} = t.{PARTITION} "
        f"THEN s.{OFFSET} > t.{OFFSET} ELSE CAST(raise_error(format_string('{KEY_MOVED}: topic %s, "
        f"partition %d, offset %d', s.{TOPIC}, s.{PARTITION}, s.{OFFSET})) AS BOOLEAN) END)"
    )


def merge_sql(
    table: str, source: str, *matched: str, on: Sequence[str], columns: Sequence[str], inserts: str = ""
) -> str:
    """Return the MERGE of a view ``s`` into a table ``t``, which inserts the view's rows that have no match.

    ``matched`` are the clauses for matched rows, ``on`` the conditions of a match, ``inserts`` a condition for inserts.
    """
    names = ", ".join(map(name, columns))
    values = ", ".join(f"s.{name(column)}" for column in columns)
    lines = (
        f"MERGE INTO {quoted_table(table)} t USING {name(source)} s",
        f"ON {' AND '.join(on)}",
        *matched,
        f"WHEN NOT MATCHED {inserts}THEN INSERT ({names}) VALUES ({values})",  # noqa: S608
    )
    return "\n".join(lines)


def update_sql(columns: Sequence[str], kept: KeptValues | None = None, *, marks: bool = False) -> str:
    values = {column: kept.value_of(column, marks=marks) if kept else f"s.{name(column)}" for column in columns}
    return f"UPDATE SET {', '.join(f't.{name(column)} = {value}' for column, value in values.items())}"


def same_sql(columns: Sequence[str]) -> list[str]:
    """Return the SQL conditions that each of these columns is equal in both rows, or null in both."""
    return [f"t.{name(column)} <=> s.{name(column)}" for column in columns]


def name(column: str) -> str:
    return quoted((column,))


def _struct(alias: str, columns: Sequence[str]) -> str:
    fields = (f"'{index}', {alias}.{name(column)}" for index, column in enumerate(columns))
    return f"named_struct({', '.join(fields)})"
