"""Turns records into rows: ``decoded`` decodes all values, ``rows`` selects the valid ones.

Between the two, every record has the column ``decoded: struct<value, schema_id, error>``:

========================  ==========  ===========  =========
record                    value       schema_id    error
========================  ==========  ===========  =========
valid                     the struct  the id       null
a null value (tombstone)  null        null         null
unreadable                null        id if known  the reason
========================  ==========  ===========  =========

``schema_id`` is null if the format has no schema ids.
"""

from __future__ import annotations

from lakefeed.clients.spark.errors import decode_error_of, registry_error_of
from lakefeed.config.decoding import JavaFormat
from lakefeed.ledger.outcomes import RECORD
from lakefeed.records.decode.formats import decoded
from lakefeed.records.decode.verdict import RecordPolicy, RowExpectation, classify, rows
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
    "RECORD",
    "ConfluentAvro",
    "ConfluentJson",
    "ConfluentProtobuf",
    "DecodeSpec",
    "JavaFormat",
    "Json",
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
