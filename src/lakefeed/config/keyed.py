"""Sinks that keep one row for each key: the settings they share, their rules, and the columns an upsert needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from pydantic import Field, model_validator

from lakefeed.config.base import Complaint, Model
from lakefeed.config.names import TOPIC_MARK
from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DELETED = "lakefeed_deleted"
"""Column that says of each change whether it deletes the row of its key."""

POSITION = ("topic", "partition", "offset")
"""The metadata that each row of an upsert table keeps; what is newer follows from it."""

POSITION_COLUMNS = tuple(f"kafka_{name}" for name in POSITION)
TIMESTAMP_COLUMN = "kafka_timestamp"
ONLY_CHANGES = ("order_by", "delete", "on_delete", "history")
ONLY_UPSERTS = ("keys", "write", *ONLY_CHANGES)


class Deletes(Model):
    """Which records of an upsert feed delete the row of their key, beside the deletes of ``envelope: debezium``."""

    tombstones: bool | None = Field(
        None,
        description="Records with a null value, whose key columns come from the record's key. Default: if decode.key "
        "says how keys are read; else decode.on_null decides.",
    )
    column: str | None = Field(None, description="A decoded column (before the transform) that says it.")
    equals: list[str | int | bool] = Field(
        default_factory=list, description="Its values that mean a delete, such as [d]."
    )

    @model_validator(mode="after")
    def _column_and_values(self) -> Deletes:
        if (self.column is None) != (not self.equals):
            raise ValueError("delete requires column and equals together, such as {column: op, equals: [d]}")
        return self


class KeyedSink(Protocol):
    """The settings of a sink's block that has ``mode: upsert``."""

    @property
    def mode(self) -> str:
        """How a row gets into the sink: append, upsert or overwrite."""

    @property
    def keys(self) -> Sequence[str]:
        """The columns that identify a row."""

    @property
    def order_by(self) -> Sequence[str]:
        """The columns that order the changes of a key; empty if offsets do."""

    @property
    def delete(self) -> Deletes:
        """Which records delete."""

    @property
    def on_delete(self) -> str:
        """How a delete is stored: remove or mark."""

    @property
    def table(self) -> str:
        """The table's or index's name."""

    @property
    def model_fields_set(self) -> set[str]:
        """The settings that the file contains."""


def in_sink(sink: KeyedSink) -> Iterator[Complaint]:
    """What does not go together in the sink's own block."""
    if sink.mode != "upsert":
        says = "this sink appends" if sink.mode == "append" else "this sink replaces all rows"
        for name in ONLY_UPSERTS:
            if name in sink.model_fields_set:
                yield Complaint(key=name, what=f"{name} is for mode: upsert", hint=says)
        return
    if not sink.keys and TOPIC_MARK not in sink.table:
        yield Complaint(
            key="keys", what="mode: upsert requires keys: the columns that a row is known by", hint="keys: [id]"
        )
    if repeated := sorted({key for key in sink.keys if [each.lower() for each in sink.keys].count(key.lower()) > 1}):
        yield Complaint(key="keys", what=f"the key {repeated[0]} is there twice")
    for key in sink.keys:
        if key.lower() in (*POSITION_COLUMNS, DELETED):
            yield Complaint(key="keys", what=f"{key} is of the record, not of its content; it cannot be a key")
    history: str | None = getattr(sink, "history", None)
    if history is not None and history.lower() == sink.table.lower():
        yield Complaint(
            key="history",
            what="the history is a table of its own, and this is the sink's",
            hint=f"history: {sink.table}_history",
        )
    if sink.order_by and sink.on_delete == "remove":
        yield Complaint(
            key="order_by",
            what="with order_by an older change may come after the delete of its key, and bring it back",
            hint="on_delete: mark remembers deletes",
        )


def keyed(sink: KeyedSink) -> str:
    """What makes a row of the sink; it cannot change once there are rows."""
    return f"{','.join(sink.keys)} {sink.on_delete}" if sink.mode == "upsert" else sink.mode


def in_rows(sink: KeyedSink, rows: StructType) -> None:
    """Refuses rows that cannot be upserted.

    Raises:
        ConfigError: naming the column that is missing, or has values that are no key.
    """
    from pyspark.sql import types as t

    have = {each.name.lower(): each for each in rows.fields}
    for column in (*sink.keys, *sink.order_by, *POSITION_COLUMNS, DELETED):
        if column.lower() not in have:
            raise ConfigError(
                f"an upsert needs the column {column}, which the rows do not have",
                where=f"table {sink.table}, columns {', '.join(rows.names)}",
                hint="name another key, or let transform.sql keep the column: SELECT *, …",
            )
    keys_in_rows(sink, rows)
    for column in sink.order_by:
        type_ = have[column.lower()].dataType
        if isinstance(type_, t.StructType | t.ArrayType | t.MapType | t.NullType):
            raise ConfigError(
                f"the column {column} is {type_.simpleString()}, which has no order", where=f"table {sink.table}"
            )


def keys_in_rows(sink: KeyedSink, rows: StructType) -> None:
    """Refuses rows whose keys are not there, or have values that are no key.

    Raises:
        ConfigError: naming the column.
    """
    from pyspark.sql import types as t

    have = {each.name.lower(): each for each in rows.fields}
    for key in sink.keys:
        if key.lower() not in have:
            raise ConfigError(
                f"keys names the column '{key}', which the rows do not have",
                where=f"table {sink.table}, columns {', '.join(rows.names)}",
            )
        type_ = have[key.lower()].dataType
        if isinstance(type_, t.FloatType | t.DoubleType | t.StructType | t.ArrayType | t.MapType | t.NullType):
            raise ConfigError(
                f"the column {key} is {type_.simpleString()}, which can be no key",
                where=f"table {sink.table}",
                hint="keys are whole numbers, decimals, strings, bytes, booleans, dates or timestamps; cast it in "
                "transform.sql",
            )
