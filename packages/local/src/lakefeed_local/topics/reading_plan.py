"""Plan how to decode a value or key for display: with a decode block, or with the writer's schema."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, cast

from lakefeed.clients.spark import driver_jvm, jars, jvm
from lakefeed.config.decoding import ExpressionFormat
from lakefeed.errors import ConfigError, MissingExtra, WorldError
from lakefeed.lazy import SparkSession
from lakefeed.records import spec as specs
from lakefeed.records.decode.avro_schema import avro_schema_of_schema
from lakefeed.records.decode.formats import decoder_options
from lakefeed.records.decode.registry import SchemaRegistry, SchemaText
from lakefeed.records.spec import Part

Format = Literal["avro", "protobuf", "json_schema", "json", "text", "bytes", "null"]

HEADER = 5
"""The number of bytes before a value in Confluent's wire format: a zero byte and the schema id."""
_KINDS: dict[str, Format] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}


class ReadingPlan(NamedTuple):
    """A way to read the bytes of values or keys."""

    format: Format
    name: str
    """The plan's name, which is unique among the plans of a topic."""
    skip: int = 0
    """The number of bytes before the data."""
    schema_id: int | None = None
    options: Callable[[SparkSession], dict[str, str]] | None = None
    """Returns the decoder's options; None if no decoder is needed."""


def schema_id(data: bytes) -> int:
    """Return the schema id of a value in Confluent's wire format."""
    return int.from_bytes(data[1:HEADER], "big")


def plan_of(spec: specs.DecodeSpec, part: specs.Part) -> ReadingPlan:
    """Return the plan for values or keys that a feed's decode block describes."""
    name = f"feed's {part}"
    match spec:
        case specs.Raw():
            return ReadingPlan("bytes", name)
        case specs.String() | ExpressionFormat():
            return ReadingPlan("text", name)
        case specs.ConfluentAvro() | specs.PlainAvro():
            kind: Format = "avro"
        case specs.ConfluentProtobuf() | specs.PlainProtobuf():
            kind = "protobuf"
        case specs.ConfluentJson():
            kind = "json_schema"
        case specs.Json():
            kind = "json"
        case _:
            kind = "text"
    return ReadingPlan(kind, name, options=lambda spark: decoder_options(spark, spec, part))


def writers_plan(number: int, schema: SchemaText) -> ReadingPlan:
    """Return the plan for values of a writer's schema that is not Protobuf; for Protobuf see ``protobuf_plan``."""
    kind = _KINDS[schema.kind]

    def options(spark: SparkSession) -> dict[str, str]:
        text = avro_schema_of_schema(spark, schema)
        if kind == "avro":
            return decoder_options(spark, specs.PlainAvro(writer_schema=text))
        return {"format": "json", "reader-schema": text, "lenient": "true"}

    return ReadingPlan(kind, f"{kind} {number}", HEADER, number, options)


def protobuf_plan(number: int, schema: SchemaText, path: Sequence[int], end: int) -> ReadingPlan:
    """Return the plan for a Protobuf message, for which ``message_indexes`` has returned ``path`` and ``end``."""

    def options(spark: SparkSession) -> dict[str, str]:
        references = tuple(reference.text for reference in schema.references)
        types = jvm.java(spark).decode.ProtobufSchemas.types(schema.text, list(references))
        message = str(types.message(list(path)).fullName())
        spec = specs.PlainProtobuf(schema=schema.text, message=message, references=references)
        return decoder_options(spark, spec)

    return ReadingPlan("protobuf", f"protobuf {number} {path}", end, number, options)


def message_indexes(data: bytes) -> tuple[list[int], int] | None:
    """Return a Protobuf header's message indexes, and the index of the message's first byte."""
    at = HEADER

    def zigzag() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7

    try:
        count = zigzag()
        if not 0 <= count <= len(data):
            return None
        path = [zigzag() for _ in range(count)] or [0]
    except IndexError:
        return None
    return path, at


ID_HEADERS = {
    part: (f"__{part}_schema_id", f"apicurio.{part}.globalId", f"apicurio.{part}.contentId")
    for part in ("value", "key")
}
"""The headers in which some serializers of Confluent and Apicurio write a schema's id, instead of before the data."""


class IdHeader(NamedTuple):
    """A record header that has a schema's id."""

    name: str
    value: bytes


def id_header(headers: Iterable[tuple[str, bytes | str | None]], part: Part = "value") -> IdHeader | None:
    """Return the first record header that has a schema's id, or None."""
    for name, value in headers:
        if name in ID_HEADERS[part] and value is not None:
            return IdHeader(name, value.encode() if isinstance(value, str) else value)
    return None


def prefix_of(header: IdHeader, registry: SchemaRegistry) -> bytes:
    """Return the bytes that would precede the data if no header had the id: a zero byte, the id, message indexes.

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
    """Ask Apicurio's own API for the schema id that belongs to a global id."""

    def pick(answer: Any) -> int | None:
        return next((int(each["contentId"]) for each in answer["versions"]), None)

    path = ("..", "..", "registry", "v3", "search", "versions")
    return registry.found_at(f"global id {number}", *path, query={"globalId": str(number)}, pick=pick)


def _malformed(header: IdHeader, expected: str) -> ConfigError:
    what = f"the header {header.name} has {len(header.value)} bytes: {expected}"
    return ConfigError(what, hint="correct the producer's serializer")


# A JVM with the classes of Spark and lakefeed starts in a second. Opening a Spark session would take several seconds.
MEMORY = "1g"
# Java 17 hides these packages, which Spark's classes need; a session opens the same packages.
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action"),
)
_OPTIONS = (
    f"-Xmx{MEMORY}",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # Java's second JIT compiler does not pay off within seconds.
    "-Duser.timezone=UTC",
    "-Dlog4j2.level=ERROR",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
)


@contextmanager
def plain_jvm(*, log_file: Path) -> Iterator[SparkSession]:
    """Yield access to a new JVM; the JVM ends when the block ends.

    Like a session, the yielded object has ``_jvm`` and a time zone (UTC): ``resolve_decoder`` and ``decoder_options``
    need no more.

    Raises:
        MissingExtra: PySpark, which contains Spark's jars, is not installed.
        JavaError: there is no Java, or Spark does not support its version.
    """
    java = driver_jvm.require_java()
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingExtra.of("pyspark", "spark", "decoding records")
    from py4j.java_gateway import GatewayParameters, JavaGateway

    paths = [jvm.jar(), *jvm.installed_jars(), str(Path(spec.origin).parent / "jars" / "*"), *jars.fetch(["spark"])]
    command = [str(java), *_OPTIONS, "-cp", os.pathsep.join(map(str, paths)), "py4j.GatewayServer"]
    with driver_jvm.private_log(log_file) as log:
        # In its own process group, the JVM does not get Ctrl-C. It ends when its standard input closes.
        process = subprocess.Popen(
            [*command, "--die-on-broken-pipe", "--enable-auth", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        port, token = process.stdout.readline().strip(), process.stdout.readline().strip()
        if not port.isdigit() or not token:
            raise WorldError(
                "the JVM that decodes records ended during its start",
                where=str(log_file),
                hint="read the log; lakefeed local doctor checks this machine",
            )
        parameters = GatewayParameters(port=int(port), auth_token=token.decode(), auto_convert=True)
        gateway = JavaGateway(gateway_parameters=parameters)
        settings = {"spark.sql.session.timeZone": "UTC"}
        stand_in: Any = SimpleNamespace(_jvm=gateway.jvm, conf=SimpleNamespace(get=settings.__getitem__))
        try:
            yield cast("SparkSession", stand_in)
        finally:
            gateway.close()
    finally:
        process.kill()
        process.communicate()
