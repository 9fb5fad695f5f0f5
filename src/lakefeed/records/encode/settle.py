"""Which schema rows are written with: given, the subject's latest, or made from them; registered before any is sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.records.decode.avro_schema import avro_schema_of_schema
from lakefeed.records.decode.registry import RegisteredSchema, SchemaRegistry, SchemaText
from lakefeed.records.encode import avro, derive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NameStrategy = Literal["topic", "record", "topic-record"]


@dataclass(frozen=True, kw_only=True)
class Settled:
    """The schema of a topic's values.

    Attributes:
        schema: as it is registered.
        avro: the same as an Avro record schema.
        subject: where it is registered; None if it is not.
        schema_id: its id there.
    """

    schema: SchemaText
    avro: str
    subject: str | None = None
    schema_id: int | None = None


def settled(
    rows: DataFrame,
    *,
    kind: str,
    topic: str,
    registry: SchemaRegistry | None,
    subject: str | None,
    strategy: NameStrategy,
    key: str | None,
    schema: SchemaText | None,
    message: str | None,
    name: str,
) -> Settled:
    """Chooses the schema, checks that the rows fit it, and registers it.

    Args:
        rows: what is to be written.
        kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        topic: names the subject.
        registry: None if the schema is not registered.
        subject: another subject than the strategy's.
        strategy: how subjects are named.
        key: the key's column, which the schema need not have.
        schema: None for the subject's latest, or one made from the rows.
        message: for Protobuf.
        name: of a record that is made from the rows.

    Raises:
        ConfigError: the rows do not fit, or the registry refuses the schema.
    """
    spark = rows.sparkSession
    if schema is not None and schema.kind != kind:
        raise _of_another_kind(f"the schema of {subject or topic}", schema.kind, kind)
    if schema is None and registry is not None:
        subject_now = subject or subject_name(strategy, topic=topic, record=name)
        latest = _latest(registry, subject_now)
        if latest is not None and latest.kind != kind:
            raise _of_another_kind(f"the schema of subject {subject_now}", latest.kind, kind)
        if latest is not None:
            try:
                known = avro_schema_of_schema(spark, latest, message=message)
                avro.require_fit(rows, known, key=key)
            except ConfigError:
                pass  # The rows' own schema may still follow the latest: the registry decides.
            else:
                return Settled(schema=latest, avro=known, subject=subject_now, schema_id=latest.schema_id)
    if schema is None:
        schema = SchemaText(text=_derived(rows, kind, name), kind=kind)
    requested = avro_schema_of_schema(spark, schema, message=message)
    avro.require_fit(rows, requested, key=key)
    if registry is None:
        return Settled(schema=schema, avro=requested)
    where = subject or subject_name(strategy, topic=topic, record=_full_name(requested))
    schema_id = registry.register(where, schema.text, kind=kind, references=schema.references)
    return Settled(schema=schema, avro=requested, subject=where, schema_id=schema_id)


def subject_name(strategy: NameStrategy, *, topic: str, record: str) -> str:
    """The subject of a topic's values, by Confluent's strategies.

    Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#subject-name-strategy
    """
    return {"topic": f"{topic}-value", "record": record, "topic-record": f"{topic}-{record}"}[strategy]


def _derived(rows: DataFrame, kind: str, name: str) -> str:
    if kind == "PROTOBUF":
        return derive.proto(rows.schema, name=name)
    return derive.json_schema(rows.schema, name=name) if kind == "JSON" else avro.derived(rows, name=name)


def _full_name(schema: str) -> str:
    document = json.loads(schema)
    namespace = document.get("namespace")
    return f"{namespace}.{document['name']}" if namespace and "." not in document["name"] else str(document["name"])


def _of_another_kind(what: str, have: str, requested: str) -> ConfigError:
    return ConfigError(
        f"{what} is of kind {have}, not {requested}", hint="encode as its format, or use another subject"
    )


def _latest(registry: SchemaRegistry, subject: str) -> RegisteredSchema | None:
    try:
        return registry.latest(subject)
    except ResourceMissing:
        return None
