"""Finds the decoder for a ``decode:`` block: reads the schema from a file, or requests it from the registry."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice, tee
from pathlib import Path
from typing import Any, Literal

from lakefeed.clients.spark import jvm
from lakefeed.config.blocks import InstalledSource
from lakefeed.config.connections import Registry
from lakefeed.config.decoding import Accept, AvroDecode, Decode, Encoded, JsonDecode, ProtobufDecode
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing, SchemaIncompatible
from lakefeed.lazy import SparkSession
from lakefeed.records import spec as specs
from lakefeed.records.decode.avro_schema import avro_schema_of, usable_versions
from lakefeed.records.decode.registry import KINDS, SchemaRegistry, SchemaText
from lakefeed.records.schema.avro import child_path
from lakefeed.records.schema.parse import require_usable
from lakefeed.records.spec import DecodeSpec, ResolvedDecoder

Part = Literal["value", "key"]
NumberedSource = KafkaSource | InstalledSource

_SPECS: dict[str, type[specs.ConfluentAvro | specs.ConfluentProtobuf | specs.ConfluentJson]] = {
    "avro": specs.ConfluentAvro,
    "protobuf": specs.ConfluentProtobuf,
    "json_schema": specs.ConfluentJson,
}


def resolve_decoder(
    spark: SparkSession,
    decode: Decode,
    source: NumberedSource,
    *,
    stored: str | None = None,
    accept: Accept = "same_record",
    variants: bool = False,
) -> ResolvedDecoder:
    """Return the decoder of a source's records.

    ``stored`` is the reader's schema that the table stores: guessed by ``json: {schema: sample}``, or merged from
    writers' schemas. Without ``stored``, the subject's newest version that can be used becomes the reader's schema.
    With ``variants``, JSON of any form becomes a variant instead of text.
    """
    choices = partial(_choices, spark, decode, source, stored, accept)
    decoder = replace(next(choices()), older=lambda: islice(choices(), 1, None))
    if isinstance(decoder.spec, specs.Json):
        decoder = replace(decoder, spec=replace(decoder.spec, variants=variants))
    return decoder


def _choices(
    spark: SparkSession, decode: Decode, source: NumberedSource, stored: str | None, accept: Accept
) -> Iterator[ResolvedDecoder]:
    """Yield decoders for all pairs of usable versions of the keys' and the values' schemas, newest first."""
    keys = iter([None]) if decode.key is None else _resolve(spark, decode.key, source, "key", accept)
    values = _resolve(spark, decode, source, "value", accept, stored)
    for key in keys:
        values, again = tee(values)
        for value in again:
            notes = (*value.notes, *(key.notes if key else ()))
            decoder = replace(value, key=key.spec if key else None, notes=notes)
            if decode.registry is not None:
                decoder = replace(
                    decoder,
                    writer_schema=_writers(spark, decode, decode.registry, decoder.spec),
                    encryption=partial(_encryption, decode.registry, decoder.spec),
                )
            yield decoder


def _writers(spark: SparkSession, decode: Decode, registry: Registry, spec: DecodeSpec) -> Callable[[int], str]:
    client, message = SchemaRegistry.of(registry), decode.protobuf.message if decode.protobuf else None
    assert isinstance(spec, specs.RegisteredFormat)
    read = partial(avro_schema_of, spark, client, kind=KINDS[decode.kind], message=message, subject=spec.subject)
    return partial(_schema_of_subjects, client, spec, read) if spec.subjects else read


def _encryption(registry: Registry, spec: DecodeSpec, schema_id: int) -> str | None:
    assert isinstance(spec, specs.RegisteredFormat)
    # Use a new client: new schemas are rare, and an old client's token may have expired.
    return encryption_of(SchemaRegistry.of(registry).schema(schema_id, spec.subject))


def put_credentials(spark: SparkSession, decode: Decode) -> None:
    """Pass the registries' credentials to the JVM, which finds them by the names in the specs."""
    for registry in (decode.registry, decode.key.registry if decode.key else None):
        if registry is not None and registry.credentials is not None and registry.credentials_name is not None:
            jvm.put_secret(spark, registry.credentials_name, registry.credentials)


def subject_of(named: str | None, source: NumberedSource, part: Part) -> str:
    """Return the subject of the reader's schema; raise ConfigError for a pattern of topics without a subject."""
    if named:
        return named
    if source.topics:
        return f"{source.topics[0]}-{part}"
    what = "with topics_pattern, the subject of the table's schema is unknown"
    hint = f"set subject: <topic>-{part} for one of the topics, or for Avro a schema_file"
    raise ConfigError(what, where="decode.key" if part == "key" else "decode", hint=hint)


def _resolve(
    spark: SparkSession, encoded: Encoded, source: NumberedSource, part: Part, accept: Accept, stored: str | None = None
) -> Iterator[ResolvedDecoder]:
    """Yield a decoder of the values or keys; with a registry, one for every usable version of the subject."""
    if stored is not None and encoded.json_ is not None and encoded.is_sampled:
        yield ResolvedDecoder(spec=_json(encoded, stored, encoded.json_.lenient))
        return
    if encoded.registry is None or (encoded.avro is not None and encoded.avro.schema_file is not None):
        decoder = ResolvedDecoder(spec=_spec(spark, encoded, source))
        is_registered = isinstance(decoder.spec, specs.RegisteredFormat)
        known = encoded.subject or (f"{source.topics[0]}-{part}" if source.topics else None)
        yield _accepting(decoder, accept, _allowed_subjects(encoded, source), known) if is_registered else decoder
        return
    own, subjects = subject_of(encoded.subject, source, part), _allowed_subjects(encoded, source)
    if subjects and own not in subjects:
        raise ConfigError(
            f"the table's schema comes from the subject {own}, but the setting subjects does not list it",
            where="decode.avro.subjects" if part == "value" else "decode.key.avro.subjects",
            hint=f"add {own} to subjects, or set subject to a name in subjects",
        )
    find = _registered if stored is None else partial(_of_stored, stored)
    for each in find(spark, encoded, encoded.registry, own):
        yield _accepting(each, accept, subjects, own)


def _accepting(
    decoder: ResolvedDecoder, accept: Accept, subjects: tuple[str, ...], subject: str | None
) -> ResolvedDecoder:
    assert isinstance(decoder.spec, specs.RegisteredFormat)
    return replace(decoder, spec=replace(decoder.spec, accept=accept, subjects=subjects, subject=subject))


def _allowed_subjects(encoded: Encoded, source: NumberedSource) -> tuple[str, ...]:
    """Return the subjects whose schemas the decoder accepts; empty to accept all."""
    named = encoded.avro.subjects if encoded.avro is not None else []
    topics = source.topics or ()
    if not topics and any("{topic}" in subject for subject in named):
        what = "with topics_pattern, {topic} in subjects has no value"
        raise ConfigError(what, where="decode.avro.subjects", hint="write the names of the subjects")
    names = [s.replace("{topic}", topic) for s in named for topic in (topics if "{topic}" in s else [""])]
    return tuple(dict.fromkeys(names))


def _schema_of_subjects(
    client: SchemaRegistry, spec: specs.RegisteredFormat, writer_schema: Callable[[int], str], schema_id: int
) -> str:
    text = writer_schema(schema_id)
    if client.subjects_of(schema_id, spec.subject).isdisjoint(spec.subjects):
        what = f"the schema is not registered under {' or '.join(spec.subjects)}"
        raise SchemaIncompatible(what, where=client.url, hint="add its subject to decode.avro.subjects")
    return text


def _spec(spark: SparkSession, encoded: Encoded, source: NumberedSource) -> DecodeSpec:
    if encoded.avro is not None:
        return _avro_file(encoded.avro)
    if encoded.protobuf is not None:
        return _protobuf_file(encoded.protobuf)
    if encoded.json_ is not None:
        whole = encoded.json_.is_whole
        return _json(encoded, "" if whole else _json_schema(encoded.json_, source), encoded.json_.lenient, whole=whole)
    if encoded.installed is not None:
        return encoded.installed.decoder()
    return specs.String() if encoded.string is not None else specs.Raw()


def _json(encoded: Encoded, schema: str, lenient: bool, *, whole: bool = False) -> specs.Json:
    fields = encoded.unknown_fields
    return specs.Json(schema=schema, sampled=encoded.is_sampled, lenient=lenient, unknown_fields=fields, whole=whole)


def _of_stored(
    reader: str, spark: SparkSession, encoded: Encoded, registry: Registry, subject: str
) -> Iterator[ResolvedDecoder]:
    """Yield the decoder for the table's schema; ``ReaderSchema`` later merges the subject's newest version into it."""
    latest_id, notes = None, tuple[str, ...]()
    try:
        latest_id = SchemaRegistry.of(registry).latest_id(subject)
    except ResourceMissing as gone:
        notes = (f"{gone.what}; the feed resumes with the schema that its table stores",)
    yield ResolvedDecoder(spec=_registered_spec(encoded, registry, reader), latest_id=latest_id, notes=notes)


def _registered(spark: SparkSession, encoded: Encoded, registry: Registry, subject: str) -> Iterator[ResolvedDecoder]:
    message = encoded.protobuf.message if encoded.protobuf else None
    client = SchemaRegistry.of(registry)
    for schema, text, passed in usable_versions(spark, client, subject, block=encoded.kind, message=message):
        notes = tuple(f"{what}; version {schema.version} is used as the reader's schema" for what in passed)
        spec = _registered_spec(encoded, registry, text)
        yield ResolvedDecoder(spec=spec, latest_id=schema.schema_id, notes=notes)


def _registered_spec(encoded: Encoded, registry: Registry, reader: str) -> DecodeSpec:
    options: dict[str, Any] = {}
    if encoded.json_schema is not None:
        options = {"lenient": encoded.json_schema.lenient, "unknown_fields": encoded.unknown_fields}
    return _SPECS[encoded.kind](
        registry_url=registry.url,
        reader_schema=reader,
        credentials=registry.credentials_name,
        glue=registry.glue_place,
        **options,
    )


def _avro_file(avro: AvroDecode) -> DecodeSpec:
    file = avro.schema_file
    assert (
        file is not None
    )  # Without a registry, the model requires a file; with a registry, the caller has checked for a file.
    text = file.read_text("utf-8")
    try:
        require_usable(text)
    except (ConfigError, SchemaIncompatible) as error:
        raise ConfigError(f"the schema cannot be used: {error.what}", where=str(file), hint=error.hint) from None
    if avro.registry is None:
        return specs.PlainAvro(writer_schema=text)
    return specs.ConfluentAvro(
        registry_url=avro.registry.url,
        reader_schema=text,
        credentials=avro.registry.credentials_name,
        glue=avro.registry.glue_place,
    )


def _protobuf_file(protobuf: ProtobufDecode) -> DecodeSpec:
    file = protobuf.schema_file
    assert file is not None  # Without a registry, the model requires a file.
    if file.suffix != ".proto":
        return specs.PlainProtobuf(schema=file.read_bytes(), message=protobuf.message)
    text = file.read_text("utf-8")
    imported = tuple(_imported(text, file.parent, {file.name}))
    return specs.PlainProtobuf(schema=text, message=protobuf.message, references=imported)


def _imported(text: str, folder: Path, visited: set[str]) -> Iterator[str]:
    """Yield the texts of the files that a .proto file imports, directly or indirectly, except Protobuf's own files."""
    for name in re.findall(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;', text, re.MULTILINE):
        path = folder / name
        if name in visited or (name.startswith("google/") and not path.is_file()):
            continue
        visited.add(name)
        try:
            imported = path.read_text("utf-8")
        except FileNotFoundError:
            what = f"the .proto file imports '{name}', which does not exist"
            hint = "put the imported file into the file's folder, or give a descriptor set: protoc --include_imports"
            raise ResourceMissing(what, where=str(path), hint=hint) from None
        yield imported
        yield from _imported(imported, folder, visited)


def _json_schema(block: JsonDecode, source: NumberedSource) -> str:
    if block.schema_ddl is not None:
        return block.schema_ddl
    if block.schema_file is not None:
        return block.schema_file.read_text("utf-8")
    from lakefeed.records.schema.inference import infer_schema, newest_values

    assert isinstance(source, KafkaSource)  # The pipeline's model refuses samples from other sources.
    guess = infer_schema(newest_values(source, records=block.sample_records))
    if not guess.ddl:
        what = f"no columns can be guessed from {guess.records} record(s): they are not JSON objects with fields"
        hint = "give schema_ddl; lakefeed schema infer shows why the records cannot be used"
        raise ConfigError(what, where=", ".join(source.topics or [str(source.topics_pattern)]), hint=hint)
    text = json.dumps(guess.avro)
    require_usable(text)
    return text


# Confluent's client-side field level encryption: the serializer encrypts values by the rules in the schema's ruleSet,
# and the records do not show which.
# https://docs.confluent.io/platform/current/security/protect-data/csfle/overview.html
_TAGS = "confluent:tags"
_MOST_NAMED = 5
_PROTOBUF_FIELD = re.compile(r"(\w+)\s*=\s*\d+\s*\[([^;]*)\]\s*;")


def encryption_of(schema: SchemaText) -> str | None:
    """Describe the values that the schema's rules encrypt, such as ``the rule pii encrypts ssn, address.zip``; return
    None without such rules.
    """
    found = []
    for rule in _rules(schema.extra.get("ruleSet")):
        name, kind = str(rule.get("name")), rule.get("type")
        if kind == "ENCRYPT_PAYLOAD":
            found.append(f"the rule {name} encrypts whole values")
        elif kind == "ENCRYPT":
            tags = {str(tag) for tag in _list(rule.get("tags"))}
            try:
                fields = list(dict.fromkeys(_tagged(schema, tags)))
            except (ValueError, RecursionError):  # Without the schema, its records cannot be read either.
                fields = []
            more = f" and {len(fields) - _MOST_NAMED} more fields" if len(fields) > _MOST_NAMED else ""
            named = ", ".join(fields[:_MOST_NAMED]) + more
            found.append(f"the rule {name} encrypts {named or 'fields with the tags ' + ', '.join(sorted(tags))}")
    return "; ".join(found) or None


def _rules(rule_set: Any) -> Iterator[Mapping[str, Any]]:
    for part in ("domainRules", "encodingRules"):
        for rule in _list(rule_set.get(part) if isinstance(rule_set, Mapping) else None):
            # A rule that applies only to reading does not encrypt.
            if isinstance(rule, Mapping) and not rule.get("disabled") and rule.get("mode") != "READ":
                yield rule


def _tagged(schema: SchemaText, tags: set[str]) -> Iterator[str]:
    """Yield the paths of fields that have one of these tags, in the schema itself or in its metadata."""
    metadata = schema.extra.get("metadata")
    beside = metadata.get("tags") if isinstance(metadata, Mapping) else None
    for path, its in beside.items() if isinstance(beside, Mapping) else ():
        if tags.intersection(map(str, _list(its))):
            yield str(path)
    if schema.kind == "PROTOBUF":
        for name, options in _PROTOBUF_FIELD.findall(schema.text):
            if ".field_meta" in options and tags.intersection(re.findall(r'"([^"]*)"', options)):
                yield name
    else:
        yield from _tagged_in(json.loads(schema.text), tags, "")


def _tagged_in(node: Any, tags: set[str], path: str) -> Iterator[str]:
    """Yield the tagged fields of an Avro schema or a JSON Schema."""
    if isinstance(node, list):
        for each in node:
            yield from _tagged_in(each, tags, path)
    elif isinstance(node, dict):
        properties = node.get("properties")
        fields = [(each.get("name"), each) for each in _list(node.get("fields")) if isinstance(each, dict)]
        fields += list(properties.items()) if isinstance(properties, dict) else []
        for name, each in fields:
            place = child_path(path, str(name))
            if isinstance(each, dict) and tags.intersection(map(str, _list(each.get(_TAGS)))):
                yield place
            yield from _tagged_in(each, tags, place)
        for key, inner in node.items():
            if key not in ("fields", "properties") and isinstance(inner, dict | list):
                yield from _tagged_in(inner, tags, path)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
