"""Makes the JSON Schema of pipeline files from the models. Editors complete, explain and check files with it.

The schema allows the short forms that the models accept besides their types: ``${NAME}`` for a number, ``decode: raw``,
``registry: http://…``, one topic instead of a list.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from lakefeed.config.base import OneOf, descriptions, summary
from lakefeed.config.kafka_client import CONSUMER, CONSUMER_DEFAULTS, PREFIX, Option
from lakefeed.config.models import pipeline_model
from lakefeed.config.sources import KafkaSource

TITLE = "lakefeed pipeline"
FILE_NAME = "pipeline.schema.json"
_REFERENCE = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"}
_TYPES = {"int": "integer", "number": "number", "bool": "boolean", "text": "string"}


class _Described(GenerateJsonSchema):
    """Generates JSON Schema with the descriptions, and with the short forms that the models accept."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        model, found = schema["cls"], super().model_schema(schema)
        found["description"] = summary(model)
        properties = found.get("properties", {})
        for key, text in descriptions(model).items():
            if key in properties:
                properties[key]["description"] = text.replace("\n", " ")
        for key, below in properties.items():
            below.pop("title", None)
            if below.get("additionalProperties") == {"type": "string"}:
                below["additionalProperties"] = {"type": ["string", "number", "boolean"]}
            if "properties" not in below:
                properties[key] = _or_reference(below)
        return _one_of(model, found) if issubclass(model, OneOf) else found


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of pipeline files, of draft 2020-12."""
    schema = pipeline_model().model_json_schema(by_alias=True, mode="validation", schema_generator=_Described)
    definitions: dict[str, Any] = schema["$defs"]
    definitions["Registry"] = _or(definitions["Registry"], {"type": "string", "description": "Its base URL."})
    kafka = definitions[KafkaSource.__name__]["properties"]
    kafka["topics"] = _or(kafka["topics"], {"type": "string", "description": "The topic."})
    kafka["options"] = {
        "type": "object",
        "description": kafka["options"]["description"],
        "properties": {f"{PREFIX}{name}": _option(name, option) for name, option in sorted(CONSUMER.items())},
        "additionalProperties": False,
    }
    schema["title"] = TITLE
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def written(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2) + "\n"


def _or(schema: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {key: schema.pop(key) for key in ("title", "description", "default") if key in schema}
    alternatives = schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]
    return {**described, "anyOf": [*alternatives, other]}


def _or_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """Make a schema accept ``${NAME}``, unless it accepts all texts already."""
    if "$ref" in schema or not schema.keys() & {"type", "anyOf", "enum", "const"}:
        return schema
    for kind in schema.get("anyOf", [schema]):
        is_text = kind.get("type") == "string" and "enum" not in kind and "const" not in kind
        if is_text or "$ref" in kind or kind.get("type") in ("object", "array"):
            return schema
    return _or(schema, _REFERENCE)


def _one_of(model: type[OneOf], schema: dict[str, Any]) -> dict[str, Any]:
    """Make a schema require exactly one kind, and accept the bare name of a kind without required settings."""
    schema["oneOf"] = [{"required": [kind]} for kind in model.kinds()]
    bare = []
    for kind in model.kinds():
        with suppress(ValidationError):
            model.model_validate(kind)
            bare.append(kind)
    return _or(schema, {"enum": bare}) if bare else schema


def _option(name: str, option: Option) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES[option.type]}
    if option.words:
        schema["enum"] = list(option.words)
    elif option.type in ("int", "number"):
        schema["minimum"] = option.least
    if option.type != "text" or option.words:
        schema = {"anyOf": [schema, _REFERENCE]}
    if default := CONSUMER_DEFAULTS.get(f"{PREFIX}{name}"):
        schema["description"] = f"lakefeed's default: {default}."
    return schema
