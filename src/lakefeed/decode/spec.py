"""How the values of a topic are encoded, as plain facts: what the decoder needs and nothing of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from lakefeed.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ConfluentAvro:
    """Avro in Confluent's wire format: each value names its writer's schema by an id in the registry.

    Attributes:
        registry_url: address of a registry with Confluent's REST API, without credentials in it.
        reader_schema: Avro schema (JSON) of the result; writers' schemas are resolved to it.
        credentials: name under which ``lakefeed.jvm.put_credentials`` has put them; None for none.
        registry_patience_seconds: how long a task goes on asking a registry that does not answer, before it
            fails. Default 60.
    """

    registry_url: str
    reader_schema: str
    credentials: str | None = None
    registry_patience_seconds: int = 60

    def __post_init__(self) -> None:
        registry_address(self.registry_url)


@dataclass(frozen=True, kw_only=True)
class PlainAvro:
    """Avro without a header, such as Spark's ``to_avro`` writes: all values have one given schema.

    Attributes:
        writer_schema: Avro schema (JSON) that the values were written with.
        reader_schema: Avro schema (JSON) of the result. Default: the writer's.
    """

    writer_schema: str
    reader_schema: str | None = None


@dataclass(frozen=True, kw_only=True)
class Json:
    """One JSON object in UTF-8 for each value.

    Attributes:
        schema: of the result: Spark DDL (``id BIGINT, name STRING``), an Avro record schema (JSON), or the JSON
            of a Spark ``StructType``. Top-level fields that it declares not null must be there.
    """

    schema: str


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Bytes as they are, in one column ``value``."""


DecodeSpec = ConfluentAvro | PlainAvro | Json | Raw
"""Any of the encodings."""


def registry_address(url: str) -> str:
    """``url`` without a slash at its end.

    Raises:
        ConfigError: not http(s), no host, or credentials inside (they would stand in Spark's settings).
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigError(
            "The schema registry's address has credentials inside, where logs and settings would show them",
            where=f"{parts.scheme}://***@{parts.hostname}",
            hint="give the user name and the password by themselves",
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            "The schema registry's address is not an http:// or https:// URL",
            where=url,
            hint="write it as http://host:port",
        )
    return url.rstrip("/")
