"""The rules of a registered schema show which fields the serializer encrypts."""

import json
from typing import Any

import pytest

from lakefeed.records.decode.registry import SchemaText
from lakefeed.records.decode.resolve import encryption_of

AVRO = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "ssn", "type": "string", "confluent:tags": ["PII", "GDPR"]},
        {
            "name": "homes",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Home",
                    "fields": [{"name": "zip", "type": ["null", "string"], "confluent:tags": ["PII"]}],
                },
            },
        },
    ],
}
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "ssn": {"type": "string", "confluent:tags": ["PII"]},
        "home": {"oneOf": [{"type": "null"}, {"properties": {"zip": {"confluent:tags": ["PII"]}}}]},
    },
}
PROTO = """syntax = "proto3";
import "confluent/meta.proto";
message Person {
  int64 id = 1;
  string ssn = 2 [(confluent.field_meta).tags = "PII"];
  string name = 3 [(confluent.field_meta) = { tags: ["OTHER", "PII"] }];
  string zip = 4 [deprecated = true];
}
"""
RULE = {"name": "pii", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]}


def encrypted(schema: Any, *rules: dict[str, Any], kind: str = "AVRO", **more: Any) -> str | None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return encryption_of(SchemaText(text=text, kind=kind, extra={"ruleSet": {"domainRules": list(rules)}, **more}))


def test_tagged_fields_of_all_kinds_of_schemas_are_named_by_their_paths() -> None:
    assert encrypted(AVRO, RULE) == "the rule pii encrypts ssn, homes.zip"
    assert encrypted(JSON_SCHEMA, RULE, kind="JSON") == "the rule pii encrypts ssn, home.zip"
    assert encrypted(PROTO, RULE, kind="PROTOBUF") == "the rule pii encrypts ssn, name"


def test_tags_outside_of_the_schema_are_used() -> None:
    found = encrypted(AVRO, {**RULE, "tags": ["SECRET"]}, metadata={"tags": {"**.id": ["SECRET"]}})
    assert found == "the rule pii encrypts **.id"


def test_several_rules_are_named_and_long_lists_of_fields_are_counted() -> None:
    fields = [{"name": f"f{number}", "type": "string", "confluent:tags": ["PII"]} for number in range(8)]
    found = encrypted({**AVRO, "fields": fields}, RULE, {**RULE, "name": "other", "tags": ["NONE"]})
    first, second = str(found).split("; ")
    assert first == "the rule pii encrypts f0, f1, f2, f3, f4 and 3 more fields"
    assert second == "the rule other encrypts fields with the tags NONE"


def test_a_rule_can_encrypt_whole_values() -> None:
    rules = {"encodingRules": [{"name": "all", "type": "ENCRYPT_PAYLOAD"}]}
    assert encryption_of(SchemaText(text="{}", extra={"ruleSet": rules})) == "the rule all encrypts whole values"


@pytest.mark.parametrize("change", [{"disabled": True}, {"mode": "READ"}, {"type": "CEL_FIELD"}])
def test_rules_that_encrypt_nothing_are_ignored(change: dict[str, Any]) -> None:
    assert encrypted(AVRO, {**RULE, **change}) is None


@pytest.mark.parametrize(
    "rule_set", [None, [], "x", {"domainRules": None}, {"domainRules": ["x", {"type": "ENCRYPT"}]}]
)
def test_a_rule_set_of_unknown_form_is_no_error(rule_set: Any) -> None:
    found = encryption_of(SchemaText(text="no json", extra={"ruleSet": rule_set, "metadata": rule_set}))
    assert found in (None, "the rule None encrypts fields with the tags ")
