"""Derive an index's mapping from the rows' columns, refuse an unsuitable index, and convert rows to documents.

Integers become ``long`` and fractions ``double``, because a column's type may be widened later, and a server cannot
change a field's type. The stored document has all digits. Texts can be searched and sorted, as with the server's
dynamic mapping, which would however make a date field if a field's first text looks like a date. Maps are stored and
not indexed, because every new key would add a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.spark import jvm
from lakefeed.config.keyed import DELETED, POSITION_COLUMNS, in_rows, keys_in_rows
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.lazy import Column, DataFrame, DataType, StructType, sf, t
from lakefeed_elasticsearch.server import Server, path_of, refusal
from lakefeed_elasticsearch.settings import ElasticsearchSinkConfig
from lakefeed_encode.encode import json_of

MADE_BY = {"made_by": "lakefeed"}
"""An index with this entry in ``_meta`` was created by lakefeed, so lakefeed may change its mapping."""
_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}


def fields(rows: StructType) -> dict[str, Any]:
    """Return the mapping's ``properties`` for the rows' columns, except those whose types the server detects itself."""
    return {each.name: found for each in rows.fields if (found := _field(each.dataType)) is not None}


def _field(type_: DataType) -> dict[str, Any] | None:
    match type_:
        case t.ArrayType():
            # A mapping has no type for arrays, because every field accepts one value or several.
            return _field(type_.elementType)
        case t.StructType():
            return {"properties": fields(type_)}
        case t.MapType():
            return {"type": "object", "enabled": False}
        case t.BooleanType():
            return {"type": "boolean"}
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return {"type": "long"}
        case t.FloatType() | t.DoubleType() | t.DecimalType():
            return {"type": "double"}
        case t.DateType() | t.TimestampType() | t.TimestampNTZType():
            return {"type": "date"}
        case t.BinaryType():
            return {"type": "binary"}
        case t.StringType():
            return dict(_TEXT)
    return None


class IndexLayout:
    """Compares a sink's index with the rows' columns, and changes the index."""

    def __init__(self, server: Server, sink: ElasticsearchSinkConfig) -> None:
        self._server = server
        self._sink = sink

    def describe(self) -> Mapping[str, Any] | None:
        """Return mapping and settings, or None if the index does not exist; refuse an unsuitable index."""
        answer = self._server.ask("GET", path_of(self._sink.index))
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise refusal(answer, where=self._sink.where)
        if len(answer.document) != 1:
            raise ConfigError(
                f"{self._sink.index} is an alias of {len(answer.document)} indexes, so a document's newer version "
                "might not replace the older one",
                where=self._sink.where,
                hint="name one index, or an alias of one",
            )
        [found] = answer.document.values()
        if "data_stream" in found:
            raise ConfigError(
                f"{self._sink.index} is a data stream, whose documents cannot be written again after a crash",
                where=self._sink.where,
                hint="name an index, or an alias of one",
            )
        translog = found.get("settings", {}).get("index", {}).get("translog", {})
        if translog.get("durability") == "async":
            raise ConfigError(
                "the index acknowledges documents before they are on disk (index.translog.durability: async): a crash "
                "of the server would lose documents of committed batches",
                where=self._sink.where,
                hint=f'PUT /{self._sink.index}/_settings {{"index.translog.durability": "request"}}',
            )
        return dict(found)

    def require(self) -> None:
        """Raise ResourceMissing if the index was removed, because a write would create an empty index."""
        if self._server.ask("HEAD", path_of(self._sink.index)).status == 404:
            raise ResourceMissing(
                "the index was removed while the feed runs",
                where=self._sink.where,
                hint="restore the index with lakefeed_feeds; or start over with another checkpoint location",
            )

    def changes(self, rows: StructType, *, evolves: bool) -> list[tuple[str, str, dict[str, Any]]]:
        """Return the requests that prepare the index for the rows: method, path and document."""
        requested, path = fields(rows), path_of(self._sink.index)
        found = self.describe()
        if found is None:
            document = {"mappings": {"_meta": MADE_BY, "properties": requested}}
            return [("PUT", path, {"settings": self._sink.settings, **document} if self._sink.settings else document)]
        mapping = found.get("mappings", {})
        ours = all(mapping.get("_meta", {}).get(key) == text for key, text in MADE_BY.items())
        if not (ours and evolves):
            return []
        missing = _missing(requested, mapping.get("properties", {}))
        return [("PUT", f"{path}/_mapping", {"properties": missing})] if missing else []

    def change(self, method: str, path: str, document: Mapping[str, Any]) -> None:
        answer = self._server.ask(method, path, document)
        if answer.status >= 300 and "resource_already_exists" not in answer.reason:
            raise refusal(answer, where=self._sink.where)


def _missing(requested: Mapping[str, Any], have: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requested fields that the mapping lacks, including fields within objects."""
    found: dict[str, Any] = {}
    for name, field in requested.items():
        if name not in have:
            found[name] = field
        elif "properties" in field and (inner := _missing(field["properties"], have[name].get("properties", {}))):
            found[name] = {"properties": inner}
    return found


ID, BODY = "id", "body"
# The row's keys, or the partition and offset of its record, give the document's id. The id does not depend on the Spark
# session, so a batch that is written twice leaves the same documents.
LONGEST_ID = 512
"""The most bytes of an id that the servers accept; a SHA-256 replaces a longer id."""
NULL, EMPTY, LONG = "\\N", "\\E", "\\#"
"""These texts stand for null, for an empty text, and for a long id; escaping never produces them."""


class IndexDocuments:
    """Converts a sink's rows to documents; with ``groups``, a row is the newest aggregate of a group."""

    def __init__(self, sink: ElasticsearchSinkConfig, *, groups: bool) -> None:
        self._sink = sink
        self.has_changes = sink.mode == "upsert" and not groups
        self._removes = self.has_changes and sink.on_delete == "remove"

    def require(self, rows: StructType) -> None:
        """Refuse rows that lack a column of the document's id, or have a key without a stable text."""
        if self.has_changes:
            in_rows(self._sink, rows)
        keys_in_rows(self._sink, rows)
        for key in self._sink.keys:
            type_ = next(each.dataType for each in rows.fields if each.name.lower() == key.lower())
            if isinstance(type_, t.DecimalType) and type_.scale > 0:
                raise ConfigError(
                    f"the key {key} is {type_.simpleString()}: if the decimal's scale changes, documents get other ids",
                    where=self._sink.where,
                    hint="cast the key in transform.sql to a string, or to a whole number",
                )
        have = {each.lower() for each in rows.names}
        if self._sink.mode == "append" and (missing := [each for each in POSITION_COLUMNS if each not in have]):
            raise ConfigError(
                f"the rows lack {missing[0]}: with mode: append, the record's offset is the document's id",
                where=f"{self._sink.where}, columns {', '.join(rows.names)}",
                hint=f"write decode.metadata: [topic, partition, offset], and SELECT {', '.join(POSITION_COLUMNS)}, …; "
                "or mode: upsert with keys",
            )

    def require_records(self, rows: DataFrame, *, stateful: bool) -> None:
        """Refuse a transform with no or several rows per record, if the record's offset is the document's id."""
        if self._sink.mode != "append":
            return
        if stateful or not jvm.java(rows.sparkSession).query.StreamingPlan.onePerRecord(rows._jdf):
            raise ConfigError(
                "with mode: append, the record's offset is the document's id, but this transform makes one "
                "row of several records, or several of one",
                where=self._sink.where,
                hint="set mode: upsert with keys that identify a row; for groups also transform.output_mode: update",
            )

    def keys(self, rows: DataFrame) -> list[str]:
        """Return the sink's key columns, with upper and lower case as in the rows' columns."""
        spelt = {each.lower(): each for each in rows.columns}
        return [spelt[key.lower()] for key in self._sink.keys]

    def count_rows(self, rows: DataFrame) -> tuple[int, int]:
        """Return the number of rows, and the number of rows without an offset, for which there is no id."""
        unknown = sf.lit(False)
        if self._sink.mode == "append":
            unknown = reduce(or_, (sf.col(each).isNull() for each in POSITION_COLUMNS))
        [row] = rows.agg(sf.count(sf.lit(1)).alias("rows"), sf.count_if(unknown).alias("unknown")).collect()
        return int(row["rows"]), int(row["unknown"])

    def columns(self, rows: StructType) -> StructType:
        """Return the documents' columns: without the record's offset and the column that marks a deletion."""
        hidden = POSITION_COLUMNS if self._sink.mode == "append" else (DELETED,) if self._removes else ()
        return t.StructType([each for each in rows.fields if each.name.lower() not in hidden])

    def of(self, rows: DataFrame) -> DataFrame:
        """Return id and JSON of all rows; the JSON is null if the row deletes its document."""
        names = self.columns(rows.schema).names
        # Spark cannot convert an empty struct to JSON.
        body = json_of(sf.struct(*(sf.col(quoted((each,))) for each in names))) if names else sf.lit("{}")
        if self._removes:
            body = sf.when(~sf.col(DELETED), body)
        if self._sink.mode == "append":
            id_ = sf.concat_ws("/", *POSITION_COLUMNS)
        else:
            id_ = id_of([(sf.col(quoted((key,))), rows.schema[key].dataType) for key in self.keys(rows)])
        return rows.select(id_.alias(ID), body.alias(BODY))


def id_of(keys: list[tuple[Column, DataType]]) -> Column:
    r"""Return an id of a key; different keys have different ids.

    A ``/`` joins the values; within a value, ``\`` becomes ``\\`` and ``/`` becomes ``\/``. Null becomes ``\N``, an
    empty text ``\E``, and an id of more than 512 bytes ``\#`` and its SHA-256.
    """

    def escaped(key: Column, type_: DataType) -> Column:
        text = _text(key, type_)
        for each in ("\\", "/"):
            text = sf.replace(text, sf.lit(each), sf.lit(f"\\{each}"))
        return sf.when(text == "", EMPTY).otherwise(sf.coalesce(text, sf.lit(NULL)))

    whole = sf.concat_ws("/", *(escaped(key, type_) for key, type_ in keys))
    hashed = sf.concat(sf.lit(LONG), sf.sha2(whole.cast("binary"), 256))
    return sf.when(sf.octet_length(whole) > LONGEST_ID, hashed).otherwise(whole)


def _text(key: Column, type_: DataType) -> Column:
    # The text must not depend on the session's time zone.
    if isinstance(type_, t.BinaryType):
        return sf.lower(sf.hex(key))
    if isinstance(type_, t.TimestampType):
        start = sf.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
        return sf.timestamp_add("MICROSECOND", sf.unix_micros(key), start).cast("string")
    return key.cast("string")
