"""Finds the fields that a registered schema's rules encrypt (Confluent's client-side field level encryption).

The serializer encrypts values after the rules of the schema's ``ruleSet``, and the records do not show it: an encrypted
text is a text. https://docs.confluent.io/platform/current/security/protect-data/csfle/overview.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lakefeed.records.decode.registry import SchemaText
from lakefeed.records.schema.avro import child_path

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
            except (ValueError, RecursionError):  # Neither the schema nor its records can be read.
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
    """Yield the paths of fields with one of the tags: in the schema, and in the metadata beside it."""
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
