"""Unwraps Debezium's change events, and marks the records that delete a row.

Format: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-create-events
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.config.decoding import AFTER_IS_TEXT, UNWRAP_DOCUMENTS
from lakefeed.config.keyed import DELETED, OWN, name_taken
from lakefeed.config.upserts import tombstones_delete
from lakefeed.errors import ConfigError
from lakefeed.lazy import Column, DataFrame, StructType, sf, t
from lakefeed.records.decode.formats import with_result

if TYPE_CHECKING:
    from lakefeed.config.models import PipelineConfig

OP = "debezium_op"
"""The column with the operation: c, r (read by a snapshot), u or d."""

TS_MS = "debezium_ts_ms"
"""The column with the time of the change, in ms since 1970, by the clock of the database or the connector."""

OWN_KEY = f"{OWN}_key"
"""The column that has the decoded key until the rows are complete, beside the value's fields."""

_DELETE = "d"
_UPSERTS = ("c", "r", "u")


@dataclass(frozen=True, kw_only=True)
class DeleteRule:
    """The rule for records that delete the row of their key.

    Attributes:
        tombstones: whether a record with a null value deletes.
        columns: by column, the values that mark a delete.
        keys: the key columns; if a delete lacks values for them, the record's key has the values.
        are_columns: whether the decoded rows have the key columns, which must not be null; False if a transform adds
            them.
    """

    tombstones: bool
    columns: tuple[tuple[str, tuple[str | int | bool, ...]], ...] = ()
    keys: tuple[str, ...] = ()
    are_columns: bool = True


def unwrap(records: DataFrame) -> DataFrame:
    """Replace the change events in ``decoded.value`` by their rows.

    The row of a delete comes from ``before``, which has the whole row or only its key, depending on the database's log.
    A tombstone stays null. For a truncate or an unknown ``op``, ``decoded.error`` has the reason.
    """
    decoded = sf.col("decoded")
    event, schema = decoded["value"], _struct(records.select("decoded.value").schema, "value")
    if (events := _events(schema)) is not schema:
        event, schema = event["payload"], events
    after = _after(schema)
    for name in after.names:
        if (why := name_taken(name, (OP, TS_MS))) is not None:
            hint = "rename the column in the database, or by a transform of the connector"
            raise ConfigError(why, where="the fields of after", hint=hint)
    in_before = _struct(schema, "before").names
    op = event["op"]
    fields = [
        sf.when(op == _DELETE, event["before"][name] if name in in_before else sf.lit(None))
        .otherwise(event["after"][name])
        .alias(name)
        for name in after.names
    ]
    error = sf.coalesce(decoded["error"], sf.when(decoded["value"].isNotNull(), _fault(op, event)))
    places = (event["source"], _struct(schema, "source")), (event, schema)
    times = [place["ts_ms"].cast("bigint") for place, fields in places if "ts_ms" in fields.names]
    change_time = sf.coalesce(*times, sf.lit(None).cast("bigint"))
    row = sf.struct(*fields, op.alias(OP), change_time.alias(TS_MS))
    value = sf.when(error.isNull() & decoded["value"].isNotNull(), row)
    return with_result(records, value, schema_id=decoded["schema_id"], error=error)


def _after(event: StructType) -> StructType:
    """Return the type of ``after``, which has the rows' columns; raise ConfigError if it has no columns."""
    after = event["after"].dataType if "after" in event.names else None
    what = "envelope: debezium requires values with the fields op and after"
    hint = "leave decode.envelope out if the connector unwraps its events itself (ExtractNewRecordState)"
    if "op" in event.names and isinstance(after, t.StringType):
        what, hint = AFTER_IS_TEXT, UNWRAP_DOCUMENTS
    elif "op" in event.names and after is not None and not isinstance(after, t.StructType):
        what = f"the rows' columns are unknown: after is {after.simpleString()}, as if the topic had only deletes"
        hint = "start when the topic has an insert or an update, or give the columns: schema_ddl or schema_file"
    if not isinstance(after, t.StructType) or "op" not in event.names:
        raise ConfigError(what, where=f"fields of the values: {', '.join(event.names)}", hint=hint)
    return after


def why_no_rows(values: StructType) -> ConfigError | None:
    """Return the error that ``unwrap`` raises for events of this type; None if it raises no error."""
    try:
        _after(_events(values))
    except ConfigError as error:
        return error
    return None


def _events(values: StructType) -> StructType:
    payload = _struct(values, "payload")
    return payload if "after" not in values.names and payload.names else values


def row_type(event: StructType) -> StructType:
    """Return the type of the rows that ``unwrap`` makes of ``event``; ``event`` itself if it is not a change event."""
    if "after" not in event.names or not isinstance(event["after"].dataType, t.StructType):
        return event
    added = [t.StructField(OP, t.StringType()), t.StructField(TS_MS, t.LongType())]
    return t.StructType([*event["after"].dataType.fields, *added])


def delete_rule(config: PipelineConfig) -> DeleteRule | None:
    """Return the pipeline's rule for deletes; None if the pipeline only adds rows."""
    sink = config.upserting
    if sink is None:
        return None
    columns: list[tuple[str, tuple[str | int | bool, ...]]] = []
    if config.decode.envelope == "debezium":
        columns.append((OP, (_DELETE,)))
    if sink.delete.column is not None:
        columns.append((sink.delete.column, tuple(sink.delete.equals)))
    return DeleteRule(
        tombstones=tombstones_delete(config),
        columns=tuple(columns),
        keys=tuple(sink.keys),
        are_columns=config.transform is None,
    )


def with_deleted(rows: DataFrame, rule: DeleteRule, *, null_value: Column) -> DataFrame:
    """Add the column ``lakefeed_deleted``, and drop the column ``OWN_KEY`` if there is one."""
    deleted = null_value if rule.tombstones else sf.lit(False)
    for column, values in rule.columns:
        if column.lower() not in {name.lower() for name in rows.columns}:
            raise ConfigError(
                f"delete.column names '{column}', which the decoded records do not have",
                where=f"columns: {', '.join(name for name in rows.columns if not name.startswith(OWN))}",
                hint="set delete.column to one of these columns",
            )
        kind = rows.schema[next(name for name in rows.columns if name.lower() == column.lower())].dataType
        fitting = {"string": str, "boolean": bool}.get(kind.typeName(), int)
        if wrong := [value for value in values if type(value) is not fitting]:
            what = f"delete.equals has {', '.join(map(repr, wrong))}, but the column {column} is {kind.simpleString()}"
            hint = "write values of the column's type: texts with quotes, such as ['1'], numbers and true without"
            raise ConfigError(what, where="delete.equals", hint=hint)
        deleted = deleted | sf.coalesce(sf.col(quoted((column,))).isin(*values), sf.lit(False))
    marked = rows.withColumn(DELETED, deleted)
    return marked.withColumns(_key_columns(marked, rule.keys)).drop(OWN_KEY)


def _fault(op: Column, event: Column) -> Column:
    text = sf.coalesce(op, sf.lit("(null)"))
    lacks_row = op.isin(*_UPSERTS) & event["after"].isNull()
    return (
        sf.when(op == "t", sf.lit("debezium: op t (truncate) empties the whole table, and no row can express that"))
        .when(op.isNull() | ~op.isin(*_UPSERTS, _DELETE), sf.concat(sf.lit("debezium: unknown op "), text))
        .when(lacks_row, sf.concat(sf.lit("debezium: op "), op, sf.lit(" without after")))
    )


def _struct(schema: StructType, name: str) -> StructType:
    field_type = schema[name].dataType if name in schema.names else None
    return field_type if isinstance(field_type, t.StructType) else t.StructType([])


def _key_columns(rows: DataFrame, keys: Sequence[str]) -> dict[str, Column]:
    """Return the key columns; a delete gets values of the record's key where they are null."""
    if OWN_KEY not in rows.columns:
        return {}
    requested = {key.lower() for key in keys}
    key, key_type = sf.col(OWN_KEY), rows.schema[OWN_KEY].dataType
    own = {name.lower() for name in key_type.names} if isinstance(key_type, t.StructType) else set()
    if isinstance(key_type, t.StructType) and "payload" in key_type.names and requested.isdisjoint(own):
        # With schemas enabled, Connect's JsonConverter writes a key as {"schema": …, "payload": …}.
        key, key_type = key["payload"], key_type["payload"].dataType
    names = {name.lower(): name for name in key_type.names} if isinstance(key_type, t.StructType) else {}
    columns = {}
    for field in rows.schema.fields:
        lower = field.name.lower()
        if lower not in requested or field.name == OWN_KEY:
            continue
        if lower in names:
            from_key = key[names[lower]]
        elif not isinstance(key_type, t.StructType) and len(keys) == 1:
            from_key = key
        else:
            continue
        column = sf.col(quoted((field.name,)))
        if isinstance(key_type, t.BinaryType) and not isinstance(field.dataType, t.BinaryType):
            from_key = from_key.cast("string")
        from_key = from_key.try_cast(field.dataType)
        columns[field.name] = sf.when(sf.col(DELETED), sf.coalesce(column, from_key)).otherwise(column)
    return columns
