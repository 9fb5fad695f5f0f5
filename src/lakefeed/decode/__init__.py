"""From a record's bytes to a row: ``decoded`` reads every value, ``rows`` takes those that are right.

Between the two each record has its position and ``decoded: struct<value, schema_id, error>``:

========================  ==========  ===========  =========
record                    value       schema_id    error
========================  ==========  ===========  =========
right                     the struct  the id       null
a null value (tombstone)  null        null         null
not readable              null        id if known  why
========================  ==========  ===========  =========

(``schema_id`` only where the format has one.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, assert_never

from lakefeed.decode.failures import POSITION, decode_error_of, registry_error_of
from lakefeed.decode.spec import ConfluentAvro, DecodeSpec, Json, PlainAvro, Raw
from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "METADATA",
    "ConfluentAvro",
    "DecodeSpec",
    "Json",
    "OnNull",
    "PlainAvro",
    "Raw",
    "decode_error_of",
    "decoded",
    "registry_error_of",
    "rows",
]

OnNull = Literal["fail", "skip", "keep"]
METADATA = ("topic", "partition", "offset", "timestamp", "key", "headers")
"""What ``rows`` can keep of a record beside its value, each as a column of this name with a ``_`` before it."""


def decoded(records: DataFrame, spec: DecodeSpec) -> DataFrame:
    """The same records with one column more, ``decoded: struct<value, schema_id, error>``.

    Works on batches and streams alike; a record that cannot be read gets an ``error``, it never stops the job.
    A schema registry that stays out does: see ``registry_error_of``.

    Args:
        records: with the column ``value`` (bytes), as Spark's Kafka source gives it.
        spec: how the values are encoded.

    Raises:
        ConfigError: a schema that cannot be used, or credentials that were not put.
    """
    from lakefeed.decode import avro, json, raw

    match spec:
        case ConfluentAvro() | PlainAvro():
            return avro.with_decoded(records, spec)
        case Json():
            return json.with_decoded(records, spec)
        case Raw():
            return raw.with_decoded(records)
    assert_never(spec)


def rows(
    decoded_records: DataFrame,
    *,
    on_error: Literal["fail"] = "fail",
    on_null: OnNull = "fail",
    keep: Sequence[str] = (),
) -> DataFrame:
    """The table's rows: the fields of each value, and the record's metadata where wanted.

    Args:
        decoded_records: what ``decoded`` returned, with the columns topic, partition and offset.
        on_error: ``fail`` stops the job at a record that cannot be read; ``decode_error_of`` tells which.
        on_null: what a null value (a tombstone) does: ``fail`` stops the job, ``skip`` leaves the record out,
            ``keep`` makes it a row of nulls.
        keep: names out of ``METADATA``; ``offset`` becomes the column ``_offset``.

    Raises:
        ConfigError: an unknown name in ``keep``, a column that the records have not got, or a field of the value
            with the name of a metadata column.
    """
    from pyspark.sql import functions as sf

    if on_error != "fail":
        raise ConfigError(f"on_error: {on_error!r} is not known", hint="use 'fail'")
    metadata = [sf.col(name).alias(f"_{name}") for name in _checked(decoded_records, keep)]
    return decoded_records.filter(_accepted(on_null)).select("decoded.value.*", *metadata)


def _accepted(on_null: OnNull) -> Column:
    """The filter that lets right records through; in a filter since that is never optimised away."""
    from pyspark.sql import functions as sf

    error = sf.col("decoded.error")
    null_value = sf.col("decoded.value").isNull()
    if on_null == "keep":
        of_null: Column = sf.lit(True)
    elif on_null == "skip":
        of_null = sf.lit(False)
    elif on_null == "fail":
        of_null = _stop(sf.lit("the value is null (a tombstone)"))
    else:
        raise ConfigError(f"on_null: {on_null!r} is not known", hint="use 'fail', 'skip' or 'keep'")
    return sf.when(error.isNotNull(), _stop(error)).when(null_value, of_null).otherwise(sf.lit(True))


def _stop(why: Column) -> Column:
    from pyspark.sql import functions as sf

    position = sf.format_string(POSITION, sf.col("topic"), sf.col("partition"), sf.col("offset"))
    return sf.raise_error(sf.concat(position, sf.lit(": "), why)).cast("boolean")


def _checked(decoded_records: DataFrame, keep: Sequence[str]) -> Sequence[str]:
    from pyspark.sql.types import StructType

    for name in keep:
        if name not in METADATA:
            raise ConfigError(f"{name!r} is not metadata of a record", hint=f"keep any of {', '.join(METADATA)}")
        if name not in decoded_records.columns:
            option = "set the option includeHeaders of the Kafka source" if name == "headers" else None
            raise ConfigError(f"The records have no column {name!r}", where="keep", hint=option)
    result = decoded_records.schema["decoded"].dataType
    value = result["value"].dataType if isinstance(result, StructType) else None
    taken = {field.name.lower() for field in value.fields} if isinstance(value, StructType) else set()
    for name in keep:
        if f"_{name}" in taken:
            raise ConfigError(
                f"The value has a field _{name} already, so the record's {name} cannot be kept under that name",
                where="keep",
                hint=f"leave {name} out of keep",
            )
    return keep
