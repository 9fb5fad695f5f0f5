"""Reads a schema's id in a record's headers for commands; a feed's decoder is ``HeaderIds.java``.

Confluent's header has the bytes that would otherwise precede the data, or a byte 1 and a GUID instead of the id:
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from lakefeed.errors import ConfigError
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed.records.spec import Part

ID_HEADERS = {
    part: (f"__{part}_schema_id", f"apicurio.{part}.globalId", f"apicurio.{part}.contentId")
    for part in ("value", "key")
}
"""The headers in which some serializers of Confluent and Apicurio write a schema's id, instead of before the data."""


class IdHeader(NamedTuple):
    """A header with a schema's id."""

    name: str
    value: bytes


def id_header(headers: Iterable[tuple[str, bytes | str | None]], part: Part = "value") -> IdHeader | None:
    """Return the first header with a schema's id, or None."""
    for name, value in headers:
        if name in ID_HEADERS[part] and value is not None:
            return IdHeader(name, value.encode() if isinstance(value, str) else value)
    return None


def prefix_of(header: IdHeader, registry: SchemaRegistry) -> bytes:
    """Return the prefix that would precede the data without the header: a zero byte, the id, and what follows it.

    Raises:
        ConfigError: the header has too few bytes.
        ResourceMissing: the registry does not have the schema.
    """
    name, value = header
    if not name.startswith("__"):
        if len(value) != 8:
            raise _malformed(header, "Apicurio's ids have 8")
        number = int.from_bytes(value, "big")
        number = _id_of_global_id(registry, number) if name.endswith("globalId") else number
        if number >= 1 << 31:
            raise _malformed(header, "a schema's id has 4")
        return b"\0" + number.to_bytes(4, "big")
    if value[:1] == b"\0" and len(value) >= 5:
        return value
    if value[:1] == b"\1" and len(value) >= 17:
        guid = str(uuid.UUID(bytes=value[1:17]))
        return b"\0" + _id_of_guid(registry, guid).to_bytes(4, "big") + value[17:]
    raise _malformed(header, "a GUID has 17 that begin with 1, an id 5 that begin with 0")


def _id_of_guid(registry: SchemaRegistry, guid: str) -> int:
    def pick(ids: Any) -> int | None:
        return next((int(each["id"]) for each in ids if each["context"] in (".", "")), None)

    return registry.found_at(f"schema GUID {guid}", "schemas", "guids", guid, "ids", pick=pick)


def _id_of_global_id(registry: SchemaRegistry, number: int) -> int:
    """Return the id for a global id, by a request to Apicurio's own API."""

    def pick(answer: Any) -> int | None:
        return next((int(each["contentId"]) for each in answer["versions"]), None)

    path = ("..", "..", "registry", "v3", "search", "versions")
    return registry.found_at(f"global id {number}", *path, query={"globalId": str(number)}, pick=pick)


def _malformed(header: IdHeader, expected: str) -> ConfigError:
    what = f"the header {header.name} has {len(header.value)} bytes: {expected}"
    return ConfigError(what, hint="correct the producer's serializer")
