"""Debezium's change events unwrapped: the row after the change, and what the event says of it.

Format: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-create-events
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

OP = "debezium_op"
"""Column: c, r (a snapshot's read), u or d."""

TS_MS = "debezium_ts_ms"
"""Column: when the database made the change, in ms since 1970; when the connector saw it, where that is not given."""

DELETE = "d"
_UPSERTS = ("c", "r", "u")


def unwrapped(records: DataFrame) -> DataFrame:
    """The same records, with the row in ``decoded.value`` in place of the change event around it.

    The row of a delete is what is in ``before``: all of it, or its key alone, as the database logs it. A tombstone
    stays null. A truncate, which has no row, and events with an unknown ``op`` are errors of their record.

    Args:
        records: what ``lakefeed.decode.decoded`` returned.

    Raises:
        ConfigError: the values' schema is not that of change events.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    decoded = sf.col("decoded")
    event, schema = decoded["value"], _struct(records, "decoded.value")
    if "payload" in schema.names and "after" not in schema.names and isinstance(schema["payload"].dataType, StructType):
        event, schema = event["payload"], schema["payload"].dataType
    after = schema["after"].dataType if "after" in schema.names else None
    if not isinstance(after, StructType) or "op" not in schema.names:
        raise ConfigError(
            "envelope: debezium requires values with the fields op and after",
            where=f"fields of the values: {', '.join(schema.names)}",
            hint="leave decode.envelope out if the connector unwraps its events itself (ExtractNewRecordState)",
        )
    before = schema["before"].dataType if "before" in schema.names else None
    known = set(before.names) if isinstance(before, StructType) else set()
    op = event["op"]
    deletes = op == DELETE
    fields = [
        sf.when(deletes, event["before"][name] if name in known else sf.lit(None))
        .otherwise(event["after"][name])
        .alias(name)
        for name in after.names
    ]
    error = sf.coalesce(decoded["error"], sf.when(decoded["value"].isNotNull(), _fault(op, event)))
    row = sf.struct(*fields, op.alias(OP), _time(event, schema).alias(TS_MS))
    return records.withColumn(
        "decoded",
        sf.struct(
            sf.when(error.isNull() & decoded["value"].isNotNull(), row).alias("value"),
            decoded["schema_id"].alias("schema_id"),
            error.alias("error"),
        ),
    )


def row_type(event: StructType) -> StructType:
    """The columns that ``unwrapped`` makes of events of this type; the type itself if they are no events."""
    from pyspark.sql import types as t

    if "after" not in event.names or not isinstance(event["after"].dataType, t.StructType):
        return event
    added = [t.StructField(OP, t.StringType()), t.StructField(TS_MS, t.LongType())]
    return t.StructType([*event["after"].dataType.fields, *added])


def _fault(op: Column, event: Column) -> Column:
    from pyspark.sql import functions as sf

    lacks_row = op.isin(*_UPSERTS) & event["after"].isNull()
    return (
        sf.when(op == "t", sf.lit("debezium: op t (truncate) empties the whole table, which no row can say"))
        .when(op.isNull() | ~op.isin(*_UPSERTS, DELETE), sf.concat(sf.lit("debezium: unknown op "), _text(op)))
        .when(lacks_row, sf.concat(sf.lit("debezium: op "), op, sf.lit(" without after")))
    )


def _text(op: Column) -> Column:
    from pyspark.sql import functions as sf

    return sf.coalesce(op, sf.lit("(null)"))


def _time(event: Column, schema: StructType) -> Column:
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    times = []
    source = schema["source"].dataType if "source" in schema.names else None
    if isinstance(source, StructType) and "ts_ms" in source.names:
        times.append(event["source"]["ts_ms"].cast("bigint"))
    if "ts_ms" in schema.names:
        times.append(event["ts_ms"].cast("bigint"))
    return sf.coalesce(*times, sf.lit(None).cast("bigint"))


def _struct(records: DataFrame, path: str) -> StructType:
    from pyspark.sql.types import StructType

    found = records.select(path).schema.fields[0].dataType
    return found if isinstance(found, StructType) else StructType([])
