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

from lakefeed.clients.spark.errors import decode_error_of as decode_error_of
from lakefeed.clients.spark.errors import registry_error_of as registry_error_of
from lakefeed.config.decoding import JavaFormat as JavaFormat
from lakefeed.ledger.outcomes import RECORD as RECORD
from lakefeed.records.decode.formats import decoded as decoded
from lakefeed.records.decode.verdict import RecordPolicy as RecordPolicy
from lakefeed.records.decode.verdict import RowExpectation as RowExpectation
from lakefeed.records.decode.verdict import classify as classify
from lakefeed.records.decode.verdict import rows as rows
from lakefeed.records.spec import ConfluentAvro as ConfluentAvro
from lakefeed.records.spec import ConfluentJson as ConfluentJson
from lakefeed.records.spec import ConfluentProtobuf as ConfluentProtobuf
from lakefeed.records.spec import DecodeSpec as DecodeSpec
from lakefeed.records.spec import Json as Json
from lakefeed.records.spec import PlainAvro as PlainAvro
from lakefeed.records.spec import PlainProtobuf as PlainProtobuf
from lakefeed.records.spec import Raw as Raw
from lakefeed.records.spec import String as String
