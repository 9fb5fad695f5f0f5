"""If a registered schema cannot become a table, the error names subject, version and id."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lakefeed.config.connections import Registry
from lakefeed.config.decoding import AvroDecode, Decode
from lakefeed.errors import ConfigError
from lakefeed.operations.preflight.connect import _subject, _subjects
from lakefeed.records.decode.avro_schema import table_schema
from lakefeed.records.decode.registry import RegisteredSchema, SchemaRegistry, inline
from lakefeed_inspect.schema_command import schema as command
from lakefeed_local.discover import _registered
from tests.support.avro_documents import MALFORMED, bomb, field, nested_arrays, record
from tests.support.registry_in_a_thread import RegistryInAThread

NAMED = "the schema of subject trips-value, version 3, id 7 cannot be used: "
JSON_SCHEMAS: list[Any] = [
    {"type": "object", "properties": []},
    {"type": 5, "properties": {"a": {}}},
    {"type": "object", "properties": {"a": {"type": 5}}},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": 5}}}},
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": 5},
    {"type": "object", "allOf": 5},
    {"type": "object", "properties": {"a": {"anyOf": 5}}},
    {"type": "object", "properties": {"a": {"enum": 5}}},
    [],
    5,
]


def registered(document: Any, kind: str = "AVRO") -> RegisteredSchema:
    text = document if isinstance(document, str) else json.dumps(document)
    return RegisteredSchema(subject="trips-value", version=3, schema_id=7, text=text, kind=kind)


@pytest.mark.parametrize("document", [each for each, _ in MALFORMED])
def test_an_error_of_an_avro_schema_names_subject_version_and_id(document: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        table_schema(None, registered(json.dumps(document)), registry="http://registry")
    assert refused.value.what.startswith(NAMED)
    assert refused.value.where == "http://registry"
    assert refused.value.exit_status == 2


@pytest.mark.parametrize("document", JSON_SCHEMAS, ids=json.dumps)
def test_an_error_of_a_json_schema_names_subject_version_and_id(document: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        table_schema(None, registered(document, "JSON"), registry="http://registry")
    assert refused.value.what.startswith(NAMED)


@pytest.mark.parametrize(
    "text",
    [
        '{"properties":{"a":' * 300 + "{}" + "}}" * 300,
        '{"type":"object","properties":{"a":' * 3_000 + "{}" + "}}" * 3_000,
        '{"type":"array","items":' * 300 + "{}" + "}" * 300,
    ],
)
def test_a_deep_json_schema_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"levels|object"):
        table_schema(None, registered(text, "JSON"), registry="http://registry")


def test_a_table_schema_with_names_that_differ_only_in_case_is_refused() -> None:
    inner = {"type": "record", "name": "n.Inner", "fields": [field("x", "int"), field("X", "int")]}
    for schema, names in [
        (record(field("id"), field("ID")), "R.id and R.ID"),
        (record(field("a", {"type": "array", "items": ["null", inner]})), "Inner.x and Inner.X"),
    ]:
        with pytest.raises(ConfigError, match=f"the fields {names} differ in case only"):
            table_schema(None, registered(schema), registry="http://registry")


def test_the_commands_check_connect_schema_show_and_init_name_the_invalid_schema(tmp_path: Path) -> None:
    for document in (5, {"type": "record", "name": "R", "fields": None}, bomb(), json.loads(nested_arrays(300))):
        with RegistryInAThread() as registry:
            found = {"subject": "trips-value", "version": 1, "id": 7, "schema": json.dumps(document)}
            registry.versions["trips-value", 1] = found
            words = "the schema of subject trips-value, version 1, id 7 cannot be used: "
            with pytest.raises(ConfigError, match=words):
                _subject(Registry(url=registry.url), "trips-value", "avro")
            with pytest.raises(ConfigError, match=words):
                _registered(SchemaRegistry(registry.url).latest("trips-value"), "", registry=registry.url)
            pipeline = tmp_path / "pipeline.yaml"
            pipeline.write_text(
                f"""
name: trips
source: {{kafka: {{bootstrap_servers: "127.0.0.1:1", topics: [trips]}}}}
decode: {{avro: {{registry: "{registry.url}"}}}}
sink: {{iceberg: {{table: lake.nyc.trips}}}}
trigger: 1 minute
checkpoint: s3a://lake/checkpoints/trips
catalogs: {{lake: {{type: jdbc, uri: "jdbc:sqlite:{tmp_path}/c.db", warehouse: "s3://lake/w"}}}}
"""
            )
            done = CliRunner().invoke(command, ["show", str(pipeline)])
            assert isinstance(done.exception, ConfigError), done.output
            assert words in done.exception.what


def put(registry: RegistryInAThread, subject: str, schema: Any, *references: tuple[str, str]) -> None:
    """Register the first version of a subject, with references (name, subject)."""
    registry.versions[subject, 1] = {
        "subject": subject,
        "version": 1,
        "id": len(registry.versions) + 1,
        "schema": json.dumps(schema),
        "references": [{"name": name, "subject": other, "version": 1} for name, other in references],
    }


def test_a_cycle_of_references_is_read_once() -> None:
    with RegistryInAThread() as registry:
        put(registry, "a", {"type": "record", "name": "A", "fields": [field("b", "B")]}, ("B", "b"))
        put(registry, "b", {"type": "record", "name": "B", "fields": [field("a", ["null", "A"])]}, ("A", "a"))
        latest = SchemaRegistry(registry.url).latest("a")
        assert sum(registry.requests.values()) <= 4
    table_schema(None, latest, registry=registry.url)


def test_a_chain_of_too_many_references_is_refused() -> None:
    with RegistryInAThread() as registry:
        for at in range(100):
            put(registry, f"s{at}", "int", ("x", f"s{at + 1}"))
        with pytest.raises(ConfigError, match="a chain of more than 32"):
            SchemaRegistry(registry.url).latest("s0")


@pytest.mark.parametrize(
    "referred", ["5", "{", '{"type":"record"}', '{"type":"record","name":"X","fields":5}', nested_arrays(2_000)]
)
def test_a_malformed_reference_is_an_error(referred: str) -> None:
    with pytest.raises(ConfigError):
        table_schema(None, registered(inline(json.dumps(record(field("x", "X"))), [referred])), registry="http://r")


def test_check_connect_reports_an_allowed_subject_that_does_not_exist() -> None:
    with RegistryInAThread() as registry:
        put(registry, "trips-value", record(field("a")))
        decode = Decode(avro=AvroDecode(registry=Registry(url=registry.url), subjects=["{topic}-value", "tripz-value"]))
        checks = _subjects(decode, "decode", "value", "trips")
        found = [problem for check in checks for problem in check()]
    assert [each.key for each in found] == ["decode.avro.subjects.1"]
    assert "no subject tripz-value" in found[0].what
    assert found[0].hint == "did you mean trips-value?"
