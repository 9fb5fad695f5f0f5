"""Derive an index's mapping from the rows' columns, and refuse an unsuitable index.

Integers become ``long`` and fractions ``double``, because a column's type may be widened later, and a server cannot
change a field's type. The stored document has all digits. Texts can be searched and sorted, as with the server's
dynamic mapping; but dynamic mapping would make a date field if the first text of a field looks like a date. Maps are
stored and not indexed, because every new key would add a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.lazy import DataType, StructType, t
from lakefeed_elasticsearch.server import Server, path_of, refusal
from lakefeed_elasticsearch.settings import ElasticsearchSinkConfig

MADE_BY = {"made_by": "lakefeed"}
"""An index with this mark in ``_meta`` was created by lakefeed, which may change its mapping."""
_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}


def fields(rows: StructType) -> dict[str, Any]:
    """Return a mapping's ``properties`` for rows, without columns whose types the server detects."""
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
    """Return the requested fields that the mapping lacks, also within objects."""
    found: dict[str, Any] = {}
    for name, field in requested.items():
        if name not in have:
            found[name] = field
        elif "properties" in field and (inner := _missing(field["properties"], have[name].get("properties", {}))):
            found[name] = {"properties": inner}
    return found
