"""Keys, decoded as values are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakefeed.records.spec import ConfluentAvro, DecodeSpec, PlainAvro, Raw, String

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY = "decoded_key"
"""Column of what a key says: a struct of its fields, or the one value of formats that have but one."""

_RESULT = "_lakefeed_key"
_VALUE = "_lakefeed_value"


def with_decoded_key(
    records: DataFrame, spec: DecodeSpec, *, decode: Callable[[DataFrame, DecodeSpec], DataFrame]
) -> DataFrame:
    """``records``, whose values are decoded, and the column ``KEY``.

    A key that cannot be read makes the record an error, whose reason begins with ``key:``. A null key is null.

    Args:
        records: with the columns key (bytes) and decoded.
        spec: how the keys are encoded.
        decode: adds the column decoded for the column value.
    """
    from pyspark.sql import functions as sf

    decoded = sf.col("decoded")
    as_values = records.withColumnsRenamed({"value": _VALUE, "key": "value", "decoded": KEY})
    keyed = decode(as_values, spec).withColumnsRenamed(
        {"value": "key", _VALUE: "value", "decoded": _RESULT, KEY: "decoded"}
    )
    why = sf.col(f"{_RESULT}.error")
    wrong = why.isNotNull()
    return (
        keyed.withColumn(
            "decoded",
            sf.struct(
                sf.when(~wrong, decoded["value"]).alias("value"),
                decoded["schema_id"].alias("schema_id"),
                sf.coalesce(decoded["error"], sf.concat(sf.lit("key: "), why)).alias("error"),
            ),
        )
        .withColumn(KEY, sf.col(f"{_RESULT}.value.value" if _has_one_value(spec) else f"{_RESULT}.value"))
        .drop(_RESULT)
    )


def _has_one_value(spec: DecodeSpec) -> bool:
    """Whether the value's struct was made for a single value."""
    match spec:
        case String() | Raw():
            return True
        case ConfluentAvro(reader_schema=schema) | PlainAvro(reader_schema=str(schema)):
            return not _is_record(schema)
        case PlainAvro(writer_schema=schema):
            return not _is_record(schema)
        case _:
            return False


def _is_record(schema: str) -> bool:
    document = json.loads(schema)
    return isinstance(document, dict) and document.get("type") == "record"
