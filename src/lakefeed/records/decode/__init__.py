"""From a record's bytes to a row: ``decoded`` reads every value, ``rows`` selects the valid ones.

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
from typing import TYPE_CHECKING, Literal

from lakefeed.clients.spark.errors import decode_error_of, registry_error_of
from lakefeed.ledger.outcomes import RECORD
from lakefeed.records.decode.changes import DeleteRule
from lakefeed.records.decode.formats import with_decoded, with_decoded_key
from lakefeed.records.decode.verdict import (
    METADATA,
    OnBadTimestamp,
    OnNull,
    RecordPolicy,
    RowExpectation,
    classify,
    is_row_or_stops,
)
from lakefeed.records.spec import (
    ConfluentAvro,
    ConfluentJson,
    ConfluentProtobuf,
    Csv,
    DecodeSpec,
    Json,
    PlainAvro,
    PlainProtobuf,
    Raw,
    String,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "METADATA",
    "RECORD",
    "ConfluentAvro",
    "ConfluentJson",
    "ConfluentProtobuf",
    "Csv",
    "DecodeSpec",
    "Json",
    "OnNull",
    "PlainAvro",
    "PlainProtobuf",
    "Raw",
    "RecordPolicy",
    "RowExpectation",
    "String",
    "classify",
    "decode_error_of",
    "decoded",
    "registry_error_of",
    "rows",
]


def decoded(records: DataFrame, spec: DecodeSpec, *, key: DecodeSpec | None = None) -> DataFrame:
    """Add the column ``decoded: struct<value, schema_id, error>``, to a batch or a stream.

    A record that cannot be read gets an ``error``, it never stops the job. A schema registry that does not answer does
    stop it: see ``registry_error_of``.

    Args:
        records: with the column ``value`` (bytes), as Spark's Kafka source gives it.
        spec: how the values are encoded.
        key: how the keys (column ``key``) are encoded. Adds the column ``decoded_key``, and a key that cannot be read
            is an error of its record.

    Raises:
        ConfigError: a schema that cannot be used, or the JVM does not have the credentials.
    """
    result = with_decoded(records, spec)
    return result if key is None else with_decoded_key(result, key)


def rows(
    decoded_records: DataFrame,
    *,
    on_null: OnNull = "fail",
    on_bad_timestamp: OnBadTimestamp | None = None,
    keep: Sequence[str] = (),
    envelope: Literal["debezium"] | None = None,
    deletes: DeleteRule | None = None,
) -> DataFrame:
    """Select the rows of decoded records; a record that cannot be read stops the job.

    ``decode_error_of`` says which record it was. A pipeline can continue after it: ``lakefeed.feed.batch_writer``.

    Args:
        decoded_records: what ``decoded`` returned, with the columns topic, partition and offset.
        on_null: what a null value (a tombstone) does: ``fail`` stops the job, ``skip`` leaves the record out,
            ``keep`` makes it a row of nulls.
        on_bad_timestamp: what a timestamp does that Spark cannot hold: see ``RecordPolicy``.
        keep: names out of ``METADATA``; ``offset`` becomes the column ``kafka_offset``.
        envelope: what the values are wrapped in.
        deletes: which records delete the row of their key: the column ``lakefeed_deleted``.

    Raises:
        ConfigError: an unknown name in ``keep``, a column that the records do not have, or a field of the value
            with the name of a metadata column.
    """
    policy = RecordPolicy(on_null=on_null, on_bad_timestamp=on_bad_timestamp, envelope=envelope, deletes=deletes)
    # In the filter, since that is never optimised away.
    return classify(decoded_records, policy, keep=keep).filter(is_row_or_stops()).drop(RECORD)
