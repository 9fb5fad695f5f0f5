"""From the ``decode:`` block to what decodes: reads schema files and asks the registry for the table's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lakefeed.clients.spark import jvm
from lakefeed.config.connections import Registry
from lakefeed.config.decoding import AvroDecode, Decode, Encoded, JsonDecode, ProtobufDecode
from lakefeed.config.failures import Accept
from lakefeed.config.sources import KafkaSource, KinesisSource
from lakefeed.errors import ConfigError, ResourceMissing, SchemaIncompatible
from lakefeed.records import spec as specs
from lakefeed.records.decode.avro_schema import avro_schema_of, table_schema
from lakefeed.records.decode.registry import RegisteredSchema, SchemaRegistry
from lakefeed.records.schema.parse import require_usable
from lakefeed.records.spec import DecodeSpec, ResolvedDecoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Part = Literal["value", "key"]
NumberedSource = KafkaSource | KinesisSource

_SPECS: dict[str, type[specs.ConfluentAvro | specs.ConfluentProtobuf | specs.ConfluentJson]] = {
    "AVRO": specs.ConfluentAvro,
    "PROTOBUF": specs.ConfluentProtobuf,
    "JSON": specs.ConfluentJson,
}


def resolve_decoder(
    spark: SparkSession,
    decode: Decode,
    source: NumberedSource,
    *,
    sampled: str | None = None,
    accept: Accept = "same_record",
) -> ResolvedDecoder:
    """Find what decodes the records of a source.

    The session is never the thread's active one: a thread that the caller starts has none. With ``json: {schema:
    sample}``, ``sampled`` is the schema that was guessed the first time; without it one is guessed now.
    """
    if sampled is not None and decode.json_ is not None and decode.is_sampled:
        value = ResolvedDecoder(spec=specs.Json(schema=sampled, sampled=True, lenient=decode.json_.lenient))
    else:
        value = _resolve(spark, decode, source, "value", accept)
    if decode.key is not None:
        value = replace(value, key=_resolve(spark, decode.key, source, "key", accept).spec)
    if decode.registry is None:
        return value
    client = SchemaRegistry.of(decode.registry)
    writer_schema: Callable[[int], str] = client.by_id
    if decode.protobuf is not None or decode.json_schema is not None:
        message = decode.protobuf.message if decode.protobuf else None
        writer_schema = partial(avro_schema_of, spark, client, message=message)
    if isinstance(value.spec, specs.RegisteredFormat) and value.spec.subjects:
        writer_schema = partial(_schema_of_subjects, client, value.spec.subjects, writer_schema)
    return replace(value, writer_schema=writer_schema)


def put_credentials(spark: SparkSession, decode: Decode) -> None:
    """Give the registries' credentials to the JVM, under the names that the specs use."""
    for registry in (decode.registry, decode.key.registry if decode.key else None):
        if registry is not None and registry.credentials is not None and registry.credentials_name is not None:
            jvm.put_secret(spark, registry.credentials_name, registry.credentials)


def subject_of(named: str | None, source: NumberedSource, part: Part) -> str:
    """Return the subject that has the table's schema; a ConfigError if none is named for a pattern of topics."""
    if named:
        return named
    if source.topics:
        return f"{source.topics[0]}-{part}"
    raise ConfigError(
        "with topics_pattern it has to be said whose schema the table has",
        where="decode.key" if part == "key" else "decode",
        hint=f"subject: <topic>-{part} of one of the topics, or for Avro a schema_file",
    )


def _resolve(
    spark: SparkSession, encoded: Encoded, source: NumberedSource, part: Part, accept: Accept
) -> ResolvedDecoder:
    """Find what decodes the values or the keys; from the registry, the newest schema of the subject."""
    if encoded.registry is None or (encoded.avro is not None and encoded.avro.schema_file is not None):
        found = ResolvedDecoder(spec=_spec(spark, encoded, source))
        own = None
    else:
        own = subject_of(encoded.subject, source, part)
        latest = SchemaRegistry.of(encoded.registry).latest(own, block=encoded.kind)
        spec = _registered(spark, encoded, encoded.registry, latest)
        found = ResolvedDecoder(spec=spec, latest_id=latest.schema_id)
    if not isinstance(found.spec, specs.RegisteredFormat):
        return found
    subjects = _allowed_subjects(encoded, source)
    if subjects and own is not None and own not in subjects:
        raise ConfigError(
            f"the table's schema comes from the subject {own}, whose records subjects refuses",
            where="decode.avro.subjects" if part == "value" else "decode.key.avro.subjects",
            hint=f"add {own}, or name one of them as subject",
        )
    return replace(found, spec=replace(found.spec, accept=accept, subjects=subjects))


def _allowed_subjects(encoded: Encoded, source: NumberedSource) -> tuple[str, ...]:
    """Return the subjects whose writers' schemas the decoder accepts; none for any."""
    named = encoded.avro.subjects if encoded.avro is not None else []
    topics = source.topics or ()
    if not topics and any("{topic}" in subject for subject in named):
        raise ConfigError(
            "with topics_pattern it is not known which topics {topic} in subjects stands for",
            where="decode.avro.subjects",
            hint="write the subjects' names",
        )
    names = [s.replace("{topic}", topic) for s in named for topic in (topics if "{topic}" in s else [""])]
    return tuple(dict.fromkeys(names))


def _schema_of_subjects(
    client: SchemaRegistry, subjects: tuple[str, ...], writer_schema: Callable[[int], str], schema_id: int
) -> str:
    text = writer_schema(schema_id)
    if client.subjects_of(schema_id).isdisjoint(subjects):
        raise SchemaIncompatible(f"the schema is not registered under {' or '.join(subjects)}", where=client.url)
    return text


def _spec(spark: SparkSession, encoded: Encoded, source: NumberedSource) -> DecodeSpec:
    if encoded.avro is not None:
        return _avro_file(encoded.avro)
    if encoded.protobuf is not None:
        return _protobuf_file(encoded.protobuf)
    if encoded.json_ is not None:
        schema = _json_schema(encoded.json_, source)
        return specs.Json(schema=schema, sampled=encoded.is_sampled, lenient=encoded.json_.lenient)
    if (csv := encoded.csv) is not None:
        schema = csv.schema_file.read_text("utf-8") if csv.schema_file else csv.schema_ddl or ""
        return specs.Csv(
            schema=schema, delimiter=csv.delimiter, quote=csv.quote, escape=csv.escape, null_value=csv.null_value
        )
    return specs.String() if encoded.string is not None else specs.Raw()


def _registered(spark: SparkSession, encoded: Encoded, registry: Registry, latest: RegisteredSchema) -> DecodeSpec:
    message = encoded.protobuf.message if encoded.protobuf else None
    reader = table_schema(spark, latest, registry=registry.url, message=message)
    options: dict[str, Any] = {"lenient": encoded.json_schema.lenient} if encoded.json_schema else {}
    return _SPECS[latest.kind](
        registry_url=registry.url, reader_schema=reader, credentials=registry.credentials_name, **options
    )


def _avro_file(avro: AvroDecode) -> DecodeSpec:
    file = avro.schema_file
    assert file is not None  # The model requires a schema where there is no registry, and else the registry was asked.
    text = file.read_text("utf-8")
    try:
        require_usable(text)
    except (ConfigError, SchemaIncompatible) as error:
        raise ConfigError(f"the schema cannot be used: {error.what}", where=str(file), hint=error.hint) from None
    if avro.registry is None:
        return specs.PlainAvro(writer_schema=text)
    return specs.ConfluentAvro(
        registry_url=avro.registry.url, reader_schema=text, credentials=avro.registry.credentials_name
    )


def _protobuf_file(protobuf: ProtobufDecode) -> DecodeSpec:
    file = protobuf.schema_file
    assert file is not None  # The model requires a schema where there is no registry.
    if file.suffix != ".proto":
        return specs.PlainProtobuf(schema=file.read_bytes(), message=protobuf.message)
    text = file.read_text("utf-8")
    imported = tuple(_imported(text, file.parent, {file.name}))
    return specs.PlainProtobuf(schema=text, message=protobuf.message, references=imported)


def _imported(text: str, folder: Path, seen: set[str]) -> Iterator[str]:
    """Yield the texts of all files that a .proto file imports from its own folder, but not Protobuf's own."""
    for name in re.findall(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;', text, re.MULTILINE):
        path = folder / name
        if name in seen or (name.startswith("google/") and not path.is_file()):
            continue
        seen.add(name)
        try:
            imported = path.read_text("utf-8")
        except FileNotFoundError:
            raise ResourceMissing(
                f"the .proto file imports '{name}', which is not there",
                where=str(path),
                hint="put it beside the file, or give a descriptor set: protoc --include_imports",
            ) from None
        yield imported
        yield from _imported(imported, folder, seen)


def _json_schema(block: JsonDecode, source: NumberedSource) -> str:
    if block.schema_ddl is not None:
        return block.schema_ddl
    if block.schema_file is not None:
        return block.schema_file.read_text("utf-8")
    from lakefeed.records.schema.inference import infer_schema, newest_values

    assert isinstance(source, KafkaSource)  # The pipeline's model refuses samples of others.
    guess = infer_schema(newest_values(source, records=block.sample_records))
    if not guess.ddl:
        raise ConfigError(
            f"no columns can be guessed from {guess.records} record(s): they are no JSON objects with fields",
            where=", ".join(source.topics or [str(source.topics_pattern)]),
            hint="lakefeed schema infer shows what was found; or give schema_ddl",
        )
    text = json.dumps(guess.avro)
    require_usable(text)
    return text
