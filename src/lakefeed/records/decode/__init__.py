"""Turns records into rows: ``decoded`` reads all values, ``rows`` selects the valid ones.

Between the two, a record has its position and ``decoded: struct<value, schema_id, error>``:

========================  ==========  ===========  =========
record                    value       schema_id    error
========================  ==========  ===========  =========
valid                     the struct  the id       null
a null value (tombstone)  null        null         null
unreadable                null        id if known  the reason
========================  ==========  ===========  =========

(``schema_id`` is set only if the format has schema ids.)
"""

from __future__ import annotations

from lakefeed.clients.spark.errors import decode_error_of, registry_error_of
from lakefeed.config.decoding import ExpressionFormat, JavaFormat
from lakefeed.ledger.outcomes import RECORD
from lakefeed.records.decode.formats import decoded
from lakefeed.records.decode.verdict import METADATA, OnNull, RecordPolicy, RowExpectation, classify, rows
from lakefeed.records.spec import (
    ConfluentAvro,
    ConfluentJson,
    ConfluentProtobuf,
    DecodeSpec,
    Json,
    PlainAvro,
    PlainProtobuf,
    Raw,
    String,
)

__all__ = [
    "METADATA",
    "RECORD",
    "ConfluentAvro",
    "ConfluentJson",
    "ConfluentProtobuf",
    "DecodeSpec",
    "ExpressionFormat",
    "JavaFormat",
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
