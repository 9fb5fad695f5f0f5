"""The Python client and the JVM decoder work with the stack's real schema registry."""

import json
import uuid
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.records.decode import ConfluentAvro, decoded
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed_local.stack import Endpoints
from tests.support import wire_format
from tests.support.records import avro_bytes, records, results

pytestmark = pytest.mark.quick


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "namespace": "io.example", "fields": list(fields)}


V1 = schema({"name": "a", "type": "int"})
V2 = schema({"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "-"})
INCOMPATIBLE = schema({"name": "a", "type": "string"}, {"name": "c", "type": "int"})


@pytest.fixture
def registry(stack: Endpoints) -> SchemaRegistry:
    return SchemaRegistry(stack.schema_registry_url)


@pytest.fixture
def subject() -> str:
    return f"trips-{uuid.uuid4().hex[:8]}-value"


def test_registered_schemas_are_read_back(registry: SchemaRegistry, subject: str) -> None:
    first = registry.register(subject, json.dumps(V1))
    assert registry.register(subject, json.dumps(V1)) == first
    second = registry.register(subject, json.dumps(V2))
    assert second != first
    latest = registry.latest(subject)
    assert (latest.subject, latest.version, latest.schema_id, latest.kind) == (subject, 2, second, "AVRO")
    assert json.loads(latest.text) == V2
    assert json.loads(registry.schema(first).text) == V1
    assert subject in registry.subjects()


def test_latest_returns_a_version_that_another_client_has_registered(registry: SchemaRegistry, subject: str) -> None:
    registry.register(subject, json.dumps(V1))
    assert registry.latest(subject).version == 1
    SchemaRegistry(registry.url).register(subject, json.dumps(V2))
    assert registry.latest(subject).version == 2


def test_a_missing_schema_id_is_an_error(registry: SchemaRegistry) -> None:
    with pytest.raises(ResourceMissing, match="has no schema id 2000000000"):
        registry.schema(2_000_000_000)


def test_an_incompatible_schema_is_refused(registry: SchemaRegistry, subject: str) -> None:
    registry.register(subject, json.dumps(V1))
    with pytest.raises(ConfigError, match="not compatible"):
        registry.register(subject, json.dumps(INCOMPATIBLE))
    assert registry.latest(subject).version == 1


def test_an_invalid_schema_is_refused(registry: SchemaRegistry, subject: str) -> None:
    with pytest.raises(ConfigError, match="refuses the schema"):
        registry.register(subject, '{"type": "record"}')


def test_references_in_the_real_registry_are_resolved(
    lake: SparkSession, registry: SchemaRegistry, subject: str
) -> None:
    import urllib.request

    city = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "name", "type": "string"}]}
    registry.register(f"city-{subject}", json.dumps(city))
    body = {
        "schema": json.dumps(schema({"name": "home", "type": "geo.City"})),
        "references": [{"name": "geo.City", "subject": f"city-{subject}", "version": 1}],
    }
    request = urllib.request.Request(
        f"{registry.url}/subjects/{subject}/versions",
        json.dumps(body).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request) as answer:
        schema_id = json.load(answer)["id"]
    reader = registry.latest(subject).text
    value = wire_format.build(schema_id, avro_bytes(json.loads(reader), {"home": {"name": "Ulm"}}))
    spec = ConfluentAvro(registry_url=registry.url, reader_schema=reader)
    [result] = results(decoded(records(lake, [value]), spec))
    assert result.error is None
    assert result.value.asDict(recursive=True) == {"home": {"name": "Ulm"}}
