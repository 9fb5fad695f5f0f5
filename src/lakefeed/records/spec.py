"""The encodings of a topic's values, as plain values for the decoder, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from lakefeed.config.decoding import Accept, ExpressionFormat, JavaFormat
from lakefeed.errors import ConfigError

ID_HEADERS = {
    part: (f"__{part}_schema_id", f"apicurio.{part}.globalId", f"apicurio.{part}.contentId")
    for part in ("value", "key")
}
"""The headers with a schema's id, for serializers of Confluent and Apicurio that do not put the id before the data."""

ID_IN_HEADER = "the schema's id is in the header %s, not before the data: lakefeed does not read such records yet"


@dataclass(frozen=True, kw_only=True)
class RegisteredFormat:
    """A format in Confluent's wire format: every value has the id of its writer's schema in the registry.

    Attributes:
        registry_url: the address of a registry with Confluent's REST API, without credentials.
        reader_schema: the Avro schema (JSON) of the result; the decoder resolves writers' schemas to it. For other
            schemas, ``lakefeed.records.decode.avro_schema.avro_schema_of`` returns an Avro schema.
        credentials: the name of the credentials that ``lakefeed.jvm.put_credentials`` has stored.
        registry_patience_seconds: how long a task retries if the registry does not answer, before the task fails.
        accept: the rule for writers' schemas whose records are read: ``schema.accept`` of a pipeline file.
        subject: the subject of the values' ids; in a registry with contexts, every context has its own ids.
        subjects: a schema id that is not registered under one of them is refused. Default: all subjects are allowed.
    """

    registry_url: str
    reader_schema: str
    credentials: str | None = None
    registry_patience_seconds: int = 300
    accept: Accept = "same_record"
    subject: str | None = None
    subjects: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        registry_address(self.registry_url)


@dataclass(frozen=True, kw_only=True)
class ConfluentAvro(RegisteredFormat):
    """Avro in Confluent's wire format."""


@dataclass(frozen=True, kw_only=True)
class ConfluentProtobuf(RegisteredFormat):
    """Protobuf in Confluent's wire format: message indexes after the id select a message of the schema.

    The message must have the name of the reader's record; as in Avro, namespaces are ignored.
    """


@dataclass(frozen=True, kw_only=True)
class ConfluentJson(RegisteredFormat):
    """JSON in Confluent's wire format with a JSON Schema in the registry; ``lenient`` is as for ``Json``."""

    lenient: bool = False


@dataclass(frozen=True, kw_only=True)
class PlainAvro:
    """Avro without a header, as Spark's ``to_avro`` writes it. The result has the reader's schema or the writer's."""

    writer_schema: str
    reader_schema: str | None = None


@dataclass(frozen=True, kw_only=True)
class PlainProtobuf:
    """Protobuf messages without a header: all values are messages of one given type.

    Attributes:
        schema: the text of a ``.proto`` file, or the bytes of a descriptor set (``protoc --descriptor_set_out
            --include_imports``).
        message: the message's name, with or without the package. Default: the first message of the (last) file.
        references: the texts of files that the ``.proto`` file imports, without Protobuf's own files.
        reader_schema: the Avro schema (JSON) of the result. Default: derived from the message.
    """

    schema: str | bytes
    message: str | None = None
    references: tuple[str, ...] = ()
    reader_schema: str | None = None


@dataclass(frozen=True, kw_only=True)
class Json:
    """Values that are JSON objects in UTF-8.

    Attributes:
        schema: the schema of the result: Spark DDL (``id BIGINT, name STRING``), an Avro record schema (JSON), or the
            JSON of a Spark ``StructType``. Fields that the schema declares not null are required.
        sampled: whether the schema was guessed from records; the feed then stores it.
        lenient: whether to accept numbers and booleans as text, NaN and Infinity, whole numbers with more digits than
            a double has, and half surrogate pairs, instead of refusing them.
    """

    schema: str
    sampled: bool = False
    lenient: bool = False


@dataclass(frozen=True, kw_only=True)
class String:
    """Text in UTF-8, in one column ``value``."""


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Undecoded bytes, in one column ``value``."""


OwnSpec = ConfluentAvro | ConfluentProtobuf | ConfluentJson | PlainAvro | PlainProtobuf | Json | String | Raw
DecodeSpec = OwnSpec | JavaFormat | ExpressionFormat


@dataclass(frozen=True, kw_only=True)
class ResolvedDecoder:
    """The decoder of a source's records, from the registry's schemas at the time of the start.

    Attributes:
        spec: the decoding of the values.
        key: the decoding of the keys; None if keys stay bytes.
        latest_id: the id of the subject's newest version, or of the older version in ``spec``; None for formats
            without schema ids, and for a schema file.
        notes: messages about versions that cannot be used and were skipped.
        older: returns the decoders for older versions, the newest first, in case this decoder's rows fit no table.
        writer_schema: returns the writer's schema for an id, always as an Avro record schema; None for formats
            without schema ids.
    """

    spec: DecodeSpec
    key: DecodeSpec | None = None
    latest_id: int | None = None
    notes: tuple[str, ...] = ()
    older: Callable[[], Iterator[ResolvedDecoder]] = lambda: iter(())
    writer_schema: Callable[[int], str] | None = None


def registry_address(url: str) -> str:
    """Return an address, or several addresses with commas, without slashes at the end.

    Raises:
        ConfigError: an address is not http(s), has no host, or has credentials, which Spark's settings would show.
    """
    return ",".join(_address(each.strip()) for each in url.split(","))


def _address(url: str) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        what = "The schema registry's address has credentials inside, where logs and settings would show them"
        hint = "give the user name and the password by themselves"
        raise ConfigError(what, where=f"{parts.scheme}://***@{parts.hostname}", hint=hint)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        hint = "write it as http://host:port"
        raise ConfigError("The schema registry's address is not an http:// or https:// URL", where=url, hint=hint)
    return url.rstrip("/")
