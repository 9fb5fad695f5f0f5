"""Changes of keyed rows: which records delete, and the key columns of those that have nothing but a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.config.keyed import DELETED
from lakefeed.config.upserts import tombstones_delete, upserting
from lakefeed.errors import ConfigError
from lakefeed.records.decode.debezium import DELETE, OP
from lakefeed.records.decode.key import KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from lakefeed.config.models import PipelineConfig


@dataclass(frozen=True, kw_only=True)
class DeleteRule:
    """Which records delete the row of their key.

    Attributes:
        tombstones: those with a null value.
        columns: those that have one of these values in this column.
        keys: the key columns, filled from the record's key where a delete has none.
    """

    tombstones: bool
    columns: tuple[tuple[str, tuple[str | int | bool, ...]], ...] = ()
    keys: tuple[str, ...] = ()


def delete_rule(config: PipelineConfig) -> DeleteRule | None:
    """As the pipeline says; None if its rows are only added."""
    sink = upserting(config)
    if sink is None:
        return None
    columns: list[tuple[str, tuple[str | int | bool, ...]]] = []
    if config.decode.envelope == "debezium":
        columns.append((OP, (DELETE,)))
    if sink.delete.column is not None:
        columns.append((sink.delete.column, tuple(sink.delete.equals)))
    return DeleteRule(tombstones=tombstones_delete(config), columns=tuple(columns), keys=tuple(sink.keys))


def with_deleted(rows: DataFrame, rule: DeleteRule, *, null_value: Column) -> DataFrame:
    """Adds the column ``lakefeed_deleted``, and takes the column ``KEY`` away if it is there.

    Args:
        rows: fields of the values, metadata, and the column ``KEY`` where keys are decoded.
        rule: which records delete.
        null_value: whether the value is null.

    Raises:
        ConfigError: the column that says what deletes is not there.
    """
    from pyspark.sql import functions as sf

    deleted = null_value if rule.tombstones else sf.lit(False)
    for column, values in rule.columns:
        if column.lower() not in {name.lower() for name in rows.columns}:
            raise ConfigError(
                f"delete.column names '{column}', which the decoded records do not have",
                where=f"columns: {', '.join(name for name in rows.columns if not name.startswith('_'))}",
            )
        deleted = deleted | sf.coalesce(sf.col(quoted((column,))).isin(*values), sf.lit(False))
    marked = rows.withColumn(DELETED, deleted)
    return marked.withColumns(_from_key(marked, rule.keys)).drop(KEY)


def _from_key(rows: DataFrame, keys: Sequence[str]) -> dict[str, Column]:
    """The key columns, for deletes without them from what the record's key says."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    if KEY not in rows.columns:
        return {}
    requested = {key.lower() for key in keys}
    own = [each for each in rows.schema.fields if each.name.lower() in requested and each.name != KEY]
    said = rows.schema[KEY].dataType
    if isinstance(said, StructType):
        names = {name.lower(): name for name in said.names}
        sources = {each.name: sf.col(KEY)[names[each.name.lower()]] for each in own if each.name.lower() in names}
    else:
        sources = {each.name: sf.col(KEY) for each in own} if len(keys) == 1 else {}
    return {
        each.name: sf.when(
            sf.col(DELETED),
            sf.coalesce(
                sf.col(quoted((each.name,))), _text(sources[each.name], said, each.dataType).try_cast(each.dataType)
            ),
        ).otherwise(sf.col(quoted((each.name,))))
        for each in own
        if each.name in sources
    }


def _text(key: Column, said: DataType, requested: DataType) -> Column:
    """Bytes as the text that they may be, where they are to become something else."""
    from pyspark.sql.types import BinaryType

    return key.cast("string") if isinstance(said, BinaryType) and not isinstance(requested, BinaryType) else key
