"""The changes of one micro-batch: which of them is the newest of its key, and what can be said of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from lakefeed.config.keyed import DELETED, POSITION_COLUMNS
from lakefeed.errors import ConfigError
from lakefeed.ledger.snapshot_summary import Upserts
from lakefeed.records.schema.ddl import type_sql
from lakefeed.sinks.iceberg.merge import KEY_MOVED, OFFSET, PARTITION, TOPIC, Bound, name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_RANK, _OF_KEY, _MOVED = "_lakefeed_rank", "_lakefeed_of_key", "_lakefeed_moved"
MEASURED = (_OF_KEY, _MOVED)
"""Columns that ``latest_per_key`` adds."""


def deleting(changes: DataFrame) -> DataFrame:
    """Changes of which each says whether it deletes; a transform may have made that of something that can be null."""
    from pyspark.sql import functions as sf

    return changes.withColumn(DELETED, sf.coalesce(sf.col(DELETED), sf.lit(False)))


def counted_groups(groups: DataFrame, *, keys: Sequence[str], where: str, kind: str) -> int:
    """How many rows a batch of groups has.

    Args:
        groups: may be computed.
        keys: of the sink.
        where: the sink, as errors name it.
        kind: of the sink, as the pipeline file has it.

    Raises:
        ConfigError: two of them have the same key.
    """
    from pyspark.sql import functions as sf

    of_key = groups.groupBy(*(sf.col(name(key)) for key in keys)).count()
    [row] = of_key.agg(sf.coalesce(sf.sum("count"), sf.lit(0)).alias("rows"), sf.max("count").alias("most")).collect()
    if (row["most"] or 0) > 1:
        raise ConfigError(
            f"a batch has {row['most']} rows of one key: {', '.join(keys)} are not all that the transform groups by",
            where=where,
            hint=f"sink.{kind}.keys: all columns of the GROUP BY",
        )
    return int(row["rows"])


def latest_per_key(changes: DataFrame, *, keys: Sequence[str], order_by: Sequence[str]) -> DataFrame:
    """The newest change of each key, with what ``summarize_changes`` needs from the others."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    of_key = Window.partitionBy(*(sf.col(name(key)) for key in keys))
    order = (*order_by, *POSITION_COLUMNS) if order_by else (OFFSET,)
    place = sf.struct(TOPIC, PARTITION)
    ranked = changes.withColumns(
        {
            _RANK: sf.row_number().over(of_key.orderBy(*(sf.col(name(each)).desc_nulls_last() for each in order))),
            _OF_KEY: sf.count(sf.lit(1)).over(of_key),
            _MOVED: sf.lit(False) if order_by else sf.min(place).over(of_key) != sf.max(place).over(of_key),
        }
    )
    return ranked.filter(sf.col(_RANK) == 1).drop(_RANK)


@dataclass(frozen=True)
class ChangeSummary:
    """What is known of a batch's changes before any is written.

    Attributes:
        upserts: how many they are.
        bounds: of their keys.
        without_key: where a change is that has none; None if all have one.
        moved: where a key is that offsets cannot order; None if they order all.
    """

    upserts: Upserts
    bounds: tuple[Bound, ...]
    without_key: str | None
    moved: str | None

    def check(self, *, keys: Sequence[str], table: str, orders: bool = True) -> None:
        """Refuses changes that cannot be landed.

        Args:
            keys: of the sink.
            table: as errors name it.
            orders: whether the sink takes ``order_by``.

        Raises:
            ConfigError: a change without a key, or a key with changes in two partitions that offsets cannot order.
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
    """Counts what ``latest_per_key`` returned, and finds the bounds of the keys, in one pass."""
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
    """The error for a key whose changes offsets cannot order."""
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


def _place_text(place: Any) -> str | None:
    return None if place is None else f"topic {place[TOPIC]}, partition {place[PARTITION]}, offset {place[OFFSET]}"


def _has_bounds(type_: DataType) -> bool:
    """Whether a text of the value is the value again, and files are ordered as Spark orders it."""
    from pyspark.sql import types as t

    whole = t.ByteType, t.ShortType, t.IntegerType, t.LongType
    return isinstance(type_, (*whole, t.DecimalType, t.DateType, t.TimestampType, t.TimestampNTZType, t.StringType))


def _literal(text: str, sql_type: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST('{escaped}' AS {sql_type})"
