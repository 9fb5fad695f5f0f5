"""Sinks that keep one row for each key: their common settings and rules, and the columns that an upsert needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from pydantic import Field

from lakefeed.config.base import ConfigProblem, Model
from lakefeed.config.values import TOPIC_MARK
from lakefeed.errors import ConfigError
from lakefeed.lazy import DataType, StructType, t

DELETED = "lakefeed_deleted"
"""The column that is true in a change that deletes the row of its key."""

OWN = "_lakefeed"
"""The prefix, in upper or lower case, of columns that lakefeed adds to rows for its own use."""

POSITION = ("topic", "partition", "offset")
"""The metadata columns of each row in an upsert table, by which the changes of a key are ordered."""

POSITION_COLUMNS = tuple(f"kafka_{name}" for name in POSITION)
TIMESTAMP_COLUMN = "kafka_timestamp"
ONLY_CHANGES = ("order_by", "delete", "on_delete", "history")


class Deletes(Model):
    """Records of an upsert feed that delete the row of their key, besides the deletes of ``envelope: debezium``."""

    tombstones: bool | None = None
    """Whether a null value deletes the row of the record's key. Default: true with decode.key; otherwise decode.on_null
    decides."""
    column: str | None = Field(None, description="The decoded column (before the transform) that marks deletes.")
    equals: list[str | int | bool] = Field(default_factory=list)
    """The values in this column that mark a delete, such as [d]."""

    def _contradictions(self) -> Iterator[str]:
        if (self.column is None) != (not self.equals):
            yield "delete requires column and equals together, such as {column: op, equals: [d]}"


def name_taken(name: str, added: Collection[str]) -> str | None:
    """Return why a field cannot have this name beside the columns that lakefeed adds; None if it can."""
    if name.lower().startswith(OWN):
        return f"the field {name} has a reserved name: columns of lakefeed begin with {OWN}"
    return f"the field {name} has the name of a column that lakefeed adds" if name.lower() in added else None


class KeyedSink(Protocol):
    """The settings of a sink that supports ``mode: upsert``."""

    @property
    def mode(self) -> str: ...

    @property
    def keys(self) -> Sequence[str]: ...

    @property
    def order_by(self) -> Sequence[str]: ...

    @property
    def delete(self) -> Deletes: ...

    @property
    def on_delete(self) -> str: ...

    @property
    def table(self) -> str: ...

    @property
    def model_fields_set(self) -> set[str]: ...


def keyed_problems(sink: KeyedSink) -> Iterator[ConfigProblem]:
    """Yield a problem for each contradiction in the sink's block."""
    if sink.mode != "upsert":
        for name in ("keys", "write", *ONLY_CHANGES):
            if name in sink.model_fields_set:
                hint = f"remove {name}, or write mode: upsert instead of {sink.mode}"
                yield ConfigProblem(f"{name} needs mode: upsert", key=name, hint=hint)
        return
    if not sink.keys and TOPIC_MARK not in sink.table:
        what = "mode: upsert requires keys: the columns that identify a row"
        yield ConfigProblem(what, key="keys", hint="write keys: [id]")
    names = [key.lower() for key in sink.keys]
    if repeated := sorted(key for key in sink.keys if names.count(key.lower()) > 1):
        yield ConfigProblem(f"keys has the column {repeated[0]} twice", key="keys", hint="remove one of the two")
    for key in sink.keys:
        if key.lower() in (*POSITION_COLUMNS, DELETED):
            what = f"{key} cannot be a key: it describes the record, not its content"
            yield ConfigProblem(what, key="keys", hint="name columns of the decoded records")
    history: str | None = getattr(sink, "history", None)
    if history is not None and history.lower() == sink.table.lower():
        what = "history and table name the same table"
        yield ConfigProblem(what, key="history", hint=f"write history: {sink.table}_history")
    if sink.order_by and sink.on_delete == "remove":
        what = "with order_by, an older change may arrive after the delete of its key and restore the row"
        yield ConfigProblem(what, key="order_by", hint="write on_delete: mark, which remembers deletes")


def keyed(sink: KeyedSink) -> str:
    """Describe how the sink identifies and deletes rows; this cannot change once the table has rows."""
    return f"{','.join(sink.keys)} {sink.on_delete}" if sink.mode == "upsert" else sink.mode


def in_rows(sink: KeyedSink, rows: StructType) -> None:
    """Refuse rows for an upsert if a column is missing, or if its type cannot be a key or has no order."""
    names = {name.lower() for name in rows.names}
    for column in (*sink.keys, *sink.order_by, *POSITION_COLUMNS, DELETED):
        if column.lower() not in names:
            raise ConfigError(
                f"an upsert needs the column {column}, which the rows do not have",
                where=f"table {sink.table}, columns {', '.join(rows.names)}",
                hint="name another column, or keep this column in transform.sql: SELECT *, …",
            )
    types = keys_in_rows(sink, rows)
    for column in sink.order_by:
        type_ = types[column.lower()]
        if isinstance(type_, t.StructType | t.ArrayType | t.MapType | t.NullType):
            what = f"the column {column} is {type_.simpleString()}, which has no order"
            raise ConfigError(what, where=f"table {sink.table}", hint="name another column in order_by")


def keys_in_rows(sink: KeyedSink, rows: StructType) -> dict[str, DataType]:
    """Return the columns' types by lower-case name; refuse rows if a key column is missing, or if its type cannot be
    a key."""
    types = {field.name.lower(): field.dataType for field in rows.fields}
    for key in sink.keys:
        if (type_ := types.get(key.lower())) is None:
            raise ConfigError(
                f"keys names the column '{key}', which the rows do not have",
                where=f"table {sink.table}, columns {', '.join(rows.names)}",
                hint="correct keys, or keep the column in transform.sql",
            )
        if isinstance(type_, t.FloatType | t.DoubleType | t.StructType | t.ArrayType | t.MapType | t.NullType):
            raise ConfigError(
                f"the column {key} is {type_.simpleString()}, which cannot be a key",
                where=f"table {sink.table}",
                hint="cast the column in transform.sql: to a whole number, decimal, string, bytes, boolean, date or "
                "timestamp",
            )
    return types
