"""Finds the newest change of each key in a micro-batch, checks all of them, and writes the MERGE that lands them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.config.keyed import DELETED, POSITION_COLUMNS
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.ledger.snapshot_summary import Upserts
from lakefeed.records.schema.ddl import type_sql
from lakefeed.sinks.iceberg.layout import quoted_table
from lakefeed.sinks.kept_values import KeptValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

TOPIC, PARTITION, OFFSET = POSITION_COLUMNS
KEY_MOVED = "lakefeed: a key has changes in more than one partition"
"""Spark's error where offsets do not show which change is newer."""

_RANK, _OF_KEY, _MOVED = "_lakefeed_rank", "_lakefeed_of_key", "_lakefeed_moved"
MEASURED = (_OF_KEY, _MOVED)
"""Columns that ``latest_per_key`` adds."""


def deleting(changes: DataFrame) -> DataFrame:
    """Replace null in the column that marks deletes: a transform may compute it from nullable columns."""
    from pyspark.sql import functions as sf

    return changes.withColumn(DELETED, sf.coalesce(sf.col(DELETED), sf.lit(False)))


def counted_groups(groups: DataFrame, *, keys: Sequence[str], where: str, kind: str) -> int:
    """Count the rows of a batch of groups, and refuse two of one key; ``kind`` is the sink's in the pipeline file."""
    from pyspark.sql import functions as sf

    of_key = groups.groupBy(*(sf.col(name(key)) for key in keys)).agg(sf.count(sf.lit(1)).alias(_OF_KEY))
    [row] = of_key.agg(sf.coalesce(sf.sum(_OF_KEY), sf.lit(0)).alias("rows"), sf.max(_OF_KEY).alias("most")).collect()
    if (row["most"] or 0) > 1:
        raise ConfigError(
            f"a batch has {row['most']} rows of one key: {', '.join(keys)} are not all that the transform groups by",
            where=where,
            hint=f"sink.{kind}.keys: all columns of the GROUP BY",
        )
    return int(row["rows"])


def latest_per_key(
    changes: DataFrame, *, keys: Sequence[str], order_by: Sequence[str], kept: KeptValues | None = None
) -> DataFrame:
    """Return the newest change of each key, with the columns that ``summarize_changes`` needs.

    It has the values that it lacks itself and an older change has, and ``KEPT``.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    of_key = Window.partitionBy(*(sf.col(name(key)) for key in keys))
    order = (*order_by, *POSITION_COLUMNS) if order_by else (OFFSET,)
    place = sf.struct(TOPIC, PARTITION)
    newest_first = of_key.orderBy(*(sf.col(name(each)).desc_nulls_last() for each in order))
    ranked = changes.withColumns(
        {
            _RANK: sf.row_number().over(newest_first),
            **(kept.newest(newest_first) if kept else {}),
            _OF_KEY: sf.count(sf.lit(1)).over(of_key),
            _MOVED: sf.lit(False) if order_by else sf.min(place).over(of_key) != sf.max(place).over(of_key),
        }
    )
    latest = ranked.filter(sf.col(_RANK) == 1).drop(_RANK)
    return kept.folded(latest) if kept else latest


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The smallest and the greatest value of a key column in a batch, as SQL."""

    column: str
    lowest: str
    highest: str


@dataclass(frozen=True)
class ChangeSummary:
    """A batch's changes before any is written."""

    upserts: Upserts
    bounds: tuple[Bound, ...]
    without_key: str | None
    """The place of a change without a key."""
    moved: str | None
    """The place of a key whose changes offsets cannot order."""

    def check(self, *, keys: Sequence[str], table: str, orders: bool = True) -> None:
        """Refuse a change without a key, and a key whose changes offsets cannot order.

        ``orders`` says whether the sink takes ``order_by``.
        """
        if self.without_key is not None:
            raise ConfigError(
                f"a change has no key: {' or '.join(keys)} is null",
                where=f"table {table}; {self.without_key}",
                hint=f"for values without a key, expect: {{has_key: {{rule: {keys[0]} IS NOT NULL, on_violation: "
                "dead_letter}}; for tombstones, decode.key has to say how the record's key is read",
            )
        if self.moved is not None:
            raise key_moved(table, self.moved, orders=orders)


def summarize_changes(newest_changes: DataFrame, *, keys: Sequence[str]) -> ChangeSummary:
    """Count what ``latest_per_key`` returned, and find the bounds of the keys, in one pass."""
    from pyspark.sql import functions as sf

    null_key = reduce(or_, (sf.col(name(key)).isNull() for key in keys))
    place = sf.struct(TOPIC, PARTITION, OFFSET)
    bounded = [key for key in keys if _has_bounds(newest_changes.schema[key].dataType)]
    [row] = newest_changes.agg(
        sf.coalesce(sf.sum(_OF_KEY), sf.lit(0)).alias("changes"),
        sf.count(sf.lit(1)).alias("keys"),
        sf.count_if(sf.col(DELETED)).alias("deletes"),
        sf.min(sf.when(null_key, place)).alias("without_key"),
        sf.min(sf.when(sf.col(_MOVED), place)).alias("moved"),
        *(sf.min(name(key)).cast("string").alias(f"lowest_{at}") for at, key in enumerate(bounded)),
        *(sf.max(name(key)).cast("string").alias(f"highest_{at}") for at, key in enumerate(bounded)),
    ).collect()
    bounds = []
    for at, key in enumerate(bounded):
        lowest, highest = row[f"lowest_{at}"], row[f"highest_{at}"]
        if lowest is not None:
            sql = type_sql(newest_changes.schema[key].dataType)
            bounds.append(Bound(column=key, lowest=_literal(lowest, sql), highest=_literal(highest, sql)))
    upserts = Upserts(row["changes"], row["keys"], row["deletes"])
    return ChangeSummary(upserts, tuple(bounds), _place_text(row["without_key"]), _place_text(row["moved"]))


def key_moved(table: str, message: str | None = None, *, orders: bool = True) -> ConfigError:
    """Return the error for a key whose changes offsets cannot order."""
    return ConfigError(
        KEY_MOVED.removeprefix("lakefeed: ") + ", so offsets do not tell which of them is newer",
        where=f"table {table}{f'; {message}' if message else ''}",
        hint="producers have to send all changes of a key to one partition, and new partitions break that: "
        + (
            "name a column that orders them, order_by: [kafka_timestamp] or one of the rows', with on_delete: mark"
            if orders
            else "land them in a new index, or in a table, which can order them by a column"
        ),
    )


def topic_recreated(topic: str, *, where: str, undo: str) -> CheckpointMismatch:
    """Return the error for offsets of a recreated topic; ``undo`` is the statement that forgets the one before."""
    what = "its offsets do not show whether a change is newer than a row of the topic before"
    return CheckpointMismatch(
        f"topic {topic} was recreated: {what}",
        where=where,
        hint=f"set {OFFSET} to NULL in all rows, which makes them older than what comes now; then {undo}",
    )


def _place_text(place: Any) -> str | None:
    return None if place is None else f"topic {place[TOPIC]}, partition {place[PARTITION]}, offset {place[OFFSET]}"


def _has_bounds(type_: DataType) -> bool:
    # A text of the value is the value again, and files are ordered as Spark orders it.
    from pyspark.sql import types as t

    whole = t.ByteType, t.ShortType, t.IntegerType, t.LongType
    return isinstance(type_, (*whole, t.DecimalType, t.DateType, t.TimestampType, t.TimestampNTZType, t.StringType))


def _literal(text: str, sql_type: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST('{escaped}' AS {sql_type})"


def upsert_sql(
    table: str,
    source: str,
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    order_by: Sequence[str] = (),
    on_delete: Literal["remove", "mark"] = "remove",
    bounds: Sequence[Bound] = (),
    kept: KeptValues | None = None,
) -> str:
    """Return the MERGE that lands the newest change of each key; it changes nothing if it is run a second time.

    ``source`` is a view with the table's columns and ``lakefeed_deleted``, one row for each key. ``order_by`` names the
    columns that say what is newer; none for the offset. With ``bounds`` of the keys in the view Iceberg reads no file
    that can have none of them.
    """
    where = [f"t.{name(key)} = s.{name(key)}" for key in keys]
    where += [
        f"t.{name(bound.column)} BETWEEN {bound.lowest} AND {bound.highest}" for bound in bounds if bound.column in keys
    ]
    newer, removes = _newer(order_by), on_delete == "remove"
    deletes = [f"WHEN MATCHED AND s.{DELETED} AND {newer} THEN DELETE"] if removes else []
    updates = f"WHEN MATCHED AND {newer} THEN {update_sql(columns, kept, marks=not removes)}"
    inserts = f"AND NOT s.{DELETED} " if removes else ""
    return merge_sql(table, source, *deletes, updates, on=where, columns=columns, inserts=inserts)


def _newer(order_by: Sequence[str]) -> str:
    """Return the condition that a change is newer than the row; one without a position is older."""
    if order_by:
        # With the position it is a total order: the result must not depend on the order of arrival.
        order = (*order_by, *POSITION_COLUMNS)
        return f"{_struct('s', order)} > {_struct('t', order)}"
    return (
        f"(t.{OFFSET} IS NULL OR CASE WHEN s.{TOPIC} = t.{TOPIC} AND s.{PARTITION} = t.{PARTITION} "
        f"THEN s.{OFFSET} > t.{OFFSET} ELSE CAST(raise_error(format_string('{KEY_MOVED}: topic %s, "
        f"partition %d, offset %d', s.{TOPIC}, s.{PARTITION}, s.{OFFSET})) AS BOOLEAN) END)"
    )


def merge_sql(
    table: str, source: str, *matched: str, on: Sequence[str], columns: Sequence[str], inserts: str = ""
) -> str:
    """Return the MERGE of a view ``s`` into a table ``t``, which inserts rows without a match.

    ``matched`` are the clauses for rows with one, ``on`` is what makes a match, ``inserts`` a condition.
    """
    listed = ", ".join(map(name, columns))
    values = ", ".join(f"s.{name(column)}" for column in columns)
    lines = (
        f"MERGE INTO {quoted_table(table)} t USING {name(source)} s",
        f"ON {' AND '.join(on)}",
        *matched,
        f"WHEN NOT MATCHED {inserts}THEN INSERT ({listed}) VALUES ({values})",  # noqa: S608
    )
    return "\n".join(lines)


def update_sql(columns: Sequence[str], kept: KeptValues | None = None, *, marks: bool = False) -> str:
    values = {column: kept.sql(column, marks=marks) if kept else f"s.{name(column)}" for column in columns}
    return f"UPDATE SET {', '.join(f't.{name(column)} = {value}' for column, value in values.items())}"


def same_sql(columns: Sequence[str]) -> list[str]:
    """Return the conditions that these columns are the same, or both null."""
    return [f"t.{name(column)} <=> s.{name(column)}" for column in columns]


def name(column: str) -> str:
    """Quote the name of a column or view."""
    return quoted((column,))


def _struct(alias: str, columns: Sequence[str]) -> str:
    fields = (f"'{index}', {alias}.{name(column)}" for index, column in enumerate(columns))
    return f"named_struct({', '.join(fields)})"
