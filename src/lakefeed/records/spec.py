"""The encodings of a topic's values and keys, as plain values without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from lakefeed.config.decoding import Accept, ExpressionFormat, JavaFormat, UnknownField
from lakefeed.errors import ConfigError

Part = Literal["value", "key"]


@dataclass(frozen=True, kw_only=True)
class RegisteredFormat:
    """A format in Confluent's wire format: every value has the id of its writer's schema in the registry.

    Attributes:
        registry_url: the address of a registry with Confluent's REST API, without credentials.
        reader_schema: the Avro schema (JSON) of the rows; ``avro_schema_of`` translates other schemas to Avro.
        credentials: the name of the credentials that ``lakefeed.jvm.put_credentials`` has stored.
        registry_patience_seconds: how long a task asks a registry that does not answer before the task fails.
        accept: ``schema.accept`` of the pipeline file: which writers' schemas are accepted.
        subject: a subject of the values' schemas, which selects the registry's context: every context has its own ids.
        subjects: records whose schema is registered under none of these subjects are refused; empty to accept all.
        glue: for a registry of AWS Glue, its region and name with a slash between; the subject is then a schema's name.
    """

    registry_url: str
    reader_schema: str
    credentials: str | None = None
    registry_patience_seconds: int = 300
    accept: Accept = "same_record"
    subject: str | None = None
    subjects: tuple[str, ...] = ()
    glue: str | None = None

    def __post_init__(self) -> None:
        registry_address(self.registry_url)


@dataclass(frozen=True, kw_only=True)
class ConfluentAvro(RegisteredFormat):
    """Avro in Confluent's wire format."""


@dataclass(frozen=True, kw_only=True)
class ConfluentProtobuf(RegisteredFormat):
    """Protobuf in Confluent's wire format: the message indexes behind the schema id select a message of the schema.

    The message must have the name of the reader's record, without package and namespace.
    """


@dataclass(frozen=True, kw_only=True)
class ConfluentJson(RegisteredFormat):
    """JSON in Confluent's wire format, with a JSON Schema in the registry; for more attributes see ``Json``."""

    lenient: bool = False
    unknown_fields: UnknownField = "ignore"


@dataclass(frozen=True, kw_only=True)
class PlainAvro:
    """Avro without a header, as Spark's ``to_avro`` writes it."""

    writer_schema: str
    reader_schema: str | None = None
    """The Avro schema of the rows. Default: the writer's schema."""


@dataclass(frozen=True, kw_only=True)
class PlainProtobuf:
    """Protobuf messages of one type without a header.

    Attributes:
        schema: the text of a ``.proto`` file, or the bytes of a descriptor set (``protoc --descriptor_set_out
            --include_imports``).
        message: the message's name, with or without the package. Default: the first message of the file, or of the
            descriptor set's last file.
        references: the texts of the files that the ``.proto`` file imports, without Protobuf's own files.
    """

    schema: str | bytes
    message: str | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Json:
    """JSON objects in UTF-8.

    Attributes:
        schema: the schema of the rows: Spark DDL (``id BIGINT, name STRING``), an Avro record schema (JSON), or the
            JSON of a Spark ``StructType``. Records must have the fields that are not nullable.
        sampled: whether the schema was guessed from records; the feed then stores it.
        lenient: whether to accept numbers and booleans as text, NaN and Infinity, whole numbers with more digits than
            a double has, and half surrogate pairs.
        unknown_fields: the treatment of a field that has no column: see ``decode.on_unknown_field``.
        whole: whether the whole value, of any form, becomes the only column.
        variants: whether the only column, or the column of unknown fields, is a variant instead of text.
        refused_fields: with ``evolve``, the paths of fields that cannot become columns.
    """

    schema: str
    sampled: bool = False
    lenient: bool = False
    unknown_fields: UnknownField = "ignore"
    refused_fields: frozenset[str] = frozenset()
    whole: bool = False
    variants: bool = False


@dataclass(frozen=True, kw_only=True)
class String:
    """Text in UTF-8, in the column ``value``."""


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Undecoded bytes, in the column ``value``."""


DecodeSpec = RegisteredFormat | PlainAvro | PlainProtobuf | Json | String | Raw | JavaFormat | ExpressionFormat


@dataclass(frozen=True, kw_only=True)
class ResolvedDecoder:
    """The decoder of a source's records, from the registry's schemas at the feed's start.

    Attributes:
        spec: the encoding of the values.
        key: the encoding of the keys; None if keys stay bytes.
        latest_id: the id of the newest version of the subject, or of the version in ``spec`` if that is older; None
            without a registry, and for a schema file.
        notes: messages about newer versions that cannot be used.
        older: yields decoders for older schemas, newest first, in case no table can have this decoder's rows.
        writer_schema: returns the writer's schema with this id as an Avro record schema; None for formats without ids.
        encryption: returns what the rules of a schema encrypt, by the schema's id; None if they encrypt nothing.
    """

    spec: DecodeSpec
    key: DecodeSpec | None = None
    latest_id: int | None = None
    notes: tuple[str, ...] = ()
    older: Callable[[], Iterator[ResolvedDecoder]] = lambda: iter(())
    writer_schema: Callable[[int], str] | None = None
    encryption: Callable[[int], str | None] = lambda schema_id: None


def registry_address(url: str) -> str:
    """Return a registry's address, or several with commas, without slashes at the end; refuse an unusable address."""
    addresses = [each.strip().rstrip("/") for each in url.split(",")]
    for address in addresses:
        parts = urlsplit(address)
        if "@" in parts.netloc:
            what = "The schema registry's address contains credentials, which logs and Spark's settings would show"
            hint = "remove the credentials from the address, and give username and password instead"
            raise ConfigError(what, where=f"{parts.scheme}://***@{parts.hostname}", hint=hint)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            what = "The schema registry's address is not an http:// or https:// URL"
            raise ConfigError(what, where=address, hint="write it as http://host:port")
    return ",".join(addresses)
