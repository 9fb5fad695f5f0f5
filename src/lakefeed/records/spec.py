"""The encodings of a topic's values: plain facts for the decoder, without Spark."""

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
"""Headers in which serializers of Confluent and Apicurio put a schema's id, if they do not put it before the data."""

ID_IN_HEADER = "the schema's id is in the header %s, not before the data: lakefeed does not read such records yet"


@dataclass(frozen=True, kw_only=True)
class RegisteredFormat:
    """A format in Confluent's wire format: each value names its writer's schema by an id in the registry.

    Attributes:
        registry_url: address of a registry with Confluent's REST API, without credentials in it.
        reader_schema: Avro schema (JSON) of the result; writers' schemas are resolved to it. For those that are
            not Avro, ``lakefeed.records.decode.avro_schema.avro_schema_of`` has one.
        credentials: name under which ``lakefeed.jvm.put_credentials`` has put them.
        registry_patience_seconds: how long a task retries a registry that does not answer, before it fails.
        accept: whose records are read: ``schema.accept`` of a pipeline file.
        subject: the subject whose ids the values have; a registry with contexts has ids of its own in each.
        subjects: a schema id that is registered under none of them is refused. Default: any subject.
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
    """Protobuf in Confluent's wire format: after the id, message indexes name the message of the schema.

    The message has the name of the reader's record, as Avro compares them: without namespace.
    """


@dataclass(frozen=True, kw_only=True)
class ConfluentJson(RegisteredFormat):
    """JSON in Confluent's wire format, described by a JSON Schema in the registry; ``lenient`` is as for ``Json``."""

    lenient: bool = False


@dataclass(frozen=True, kw_only=True)
class PlainAvro:
    """Avro without a header, as Spark's ``to_avro`` writes it. The result has the reader's schema, or the writer's."""

    writer_schema: str
    reader_schema: str | None = None


@dataclass(frozen=True, kw_only=True)
class PlainProtobuf:
    """Protobuf messages without a header: all values are of one given type.

    Attributes:
        schema: text of a ``.proto`` file, or the bytes of a descriptor set (``protoc --descriptor_set_out
            --include_imports``).
        message: its name, with the package or without. Default: the first of the (last) file.
        references: texts of files that the ``.proto`` file imports; Protobuf's own are known.
        reader_schema: Avro schema (JSON) of the result. Default: what follows from the message.
    """

    schema: str | bytes
    message: str | None = None
    references: tuple[str, ...] = ()
    reader_schema: str | None = None


@dataclass(frozen=True, kw_only=True)
class Json:
    """One JSON object in UTF-8 for each value.

    Attributes:
        schema: of the result: Spark DDL (``id BIGINT, name STRING``), an Avro record schema (JSON), or the JSON
            of a Spark ``StructType``. Fields that it declares not null are required.
        sampled: whether the schema was guessed from records; then a feed keeps it.
        lenient: read numbers and booleans as text, NaN and Infinity, whole numbers with more digits than a double
            keeps, and half surrogate pairs, instead of refusing them.
    """

    schema: str
    sampled: bool = False
    lenient: bool = False


@dataclass(frozen=True, kw_only=True)
class String:
    """Text in UTF-8, in one column ``value``."""


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Bytes as they are, in one column ``value``."""


OwnSpec = ConfluentAvro | ConfluentProtobuf | ConfluentJson | PlainAvro | PlainProtobuf | Json | String | Raw
DecodeSpec = OwnSpec | JavaFormat | ExpressionFormat


@dataclass(frozen=True, kw_only=True)
class ResolvedDecoder:
    """The decoder of a source's records, by the registry's schemas of one moment.

    Attributes:
        spec: what decodes the values.
        key: what decodes the keys; None if they stay bytes.
        latest_id: id of the subject's newest version, or of the older one in ``spec``; None for formats whose records
            name no schema, and where a schema file is given.
        notes: what to report of versions that cannot be used, and were passed over.
        older: the decoders by older versions, the newest first: they follow if the rows of this one fit no table.
        writer_schema: from an id to the writer's schema, as an Avro record schema whatever it is in the registry; None
            for formats whose records name no schema.
    """

    spec: DecodeSpec
    key: DecodeSpec | None = None
    latest_id: int | None = None
    notes: tuple[str, ...] = ()
    older: Callable[[], Iterator[ResolvedDecoder]] = lambda: iter(())
    writer_schema: Callable[[int], str] | None = None


def registry_address(url: str) -> str:
    """Return the address, or several with commas between them, without a slash at its end.

    Raises:
        ConfigError: not http(s), no host, or credentials inside, which Spark's settings would show.
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
