"""Reads the documents of a JSON Schema, checks them, and resolves references."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from referencing import Registry, Resource, Specification
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT3, DRAFT4, DRAFT6, DRAFT7, DRAFT202012, lookup_recursive_ref, specification_with

from lakefeed.errors import ConfigError
from lakefeed.records.schema.avro import DEEPEST

Resolver: TypeAlias = Any
"""A resolver of ``referencing``, whose class is not public: it resolves references from one place of a document."""

MALFORMED = "correct the schema and register it again"
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_LEGACY = (DRAFT3, DRAFT4, DRAFT6, DRAFT7)
# Only drafts after draft 7 have these keywords: they show the draft of a document without ``$schema``.
_LATER = ("$defs", "$anchor", "$dynamicAnchor", "$dynamicRef", "prefixItems", "unevaluatedProperties")
_MAPS = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_TEXTS = ("$id", "$schema", "$anchor", "$dynamicAnchor", "$ref", "$dynamicRef")


@dataclass(frozen=True)
class Pointer:
    """The path of a schema within a document, as error messages show it."""

    steps: tuple[str, ...] = ()
    level: int = 0
    """How many schemas are around this one."""

    def below(self, *steps: str) -> Pointer:
        return Pointer((*self.steps, *steps), self.level + 1)

    def __str__(self) -> str:
        shown = self.steps if len(self.steps) <= 16 else (*self.steps[:8], "…", *self.steps[-8:])
        return "#" + "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in shown)


def malformed(pointer: Pointer, what: str) -> ConfigError:
    return ConfigError(f"The JSON Schema is malformed at {pointer}: {what}", hint=MALFORMED)


def too_deep() -> ConfigError:
    hint = "replace the deeper schemas by an object without properties: it becomes a column of JSON text"
    return ConfigError(f"The JSON Schema is nested deeper than {DEEPEST} levels", hint=hint)


class SchemaDocuments:
    """A JSON Schema, and the documents that it refers to, by their names in ``$ref``."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        self._legacy: dict[int, bool] = {}
        self.root = _read(text, "the JSON Schema")
        self._resources = {"": self._resource(self.root)}
        for name, referred in references.items():
            self._resources[name] = self._resource(_read(referred, f"the referenced schema {name}"))
        for resource in tuple(self._resources.values()):
            if (identity := resource.id()) is not None:
                self._resources.setdefault(identity.rstrip("#"), resource)
        registry: Registry[Any] = Registry(retrieve=self._retrieve)  # type: ignore[call-arg]
        registry = registry.with_resources(self._resources.items())
        self.resolver: Resolver = registry.resolver_with_root(self._resources[""])

    def is_legacy(self, schema: Mapping[str, Any]) -> bool:
        """Return whether a schema's draft is 7 or older; these drafts ignore keywords beside ``$ref``."""
        return self._legacy.get(id(schema), False)

    def inside(self, schema: dict[str, Any], resolver: Resolver) -> Resolver:
        """Return the resolver for the references in ``schema``, which may have its own base address."""
        if not isinstance(schema.get("$id", schema.get("id")), str):
            return resolver
        specification = DRAFT202012 if not self.is_legacy(schema) else DRAFT7 if "$id" in schema else DRAFT4
        return resolver.in_subresource(specification.create_resource(schema))

    def targets(self, schema: dict[str, Any], resolver: Resolver, path: Pointer) -> Iterator[tuple[Any, Any]]:
        """Yield the targets of the references in ``schema``, with their resolvers."""
        for word in _REFERENCES:
            if word not in schema:
                continue
            try:
                target = lookup_recursive_ref(resolver) if word == "$recursiveRef" else resolver.lookup(schema[word])
            except (Unresolvable, ValueError, LookupError, TypeError, AttributeError):
                target = None
            if target is None or not isinstance(target.contents, dict | bool):
                what = f"The JSON Schema refers to {schema[word]}, which does not exist"
                hint = "correct $ref, or register the other schema as a reference of this one"
                raise ConfigError(what, where=str(path), hint=hint)
            yield target.contents, target.resolver

    def _resource(self, document: dict[str, Any]) -> Resource[Any]:
        schemas = _check(document)
        specification = _specification(document, schemas)
        self._legacy.update((id(schema), specification in _LEGACY) for schema in schemas)
        return specification.create_resource(document)

    def _retrieve(self, uri: str) -> Resource[Any]:
        """Return the document whose path has the longest end in common with ``uri``, which is no document's name."""

        def same(key: str) -> int:
            return sum(1 for _ in takewhile(lambda two: two[0] == two[1], zip(_path(uri), _path(key), strict=False)))

        best = max(self._resources, key=same)
        if not same(best):
            raise NoSuchResource(ref=uri)  # type: ignore[call-arg]
        return self._resources[best]


def _path(uri: str) -> list[str]:
    parts = urlsplit(uri)
    return [each for each in reversed((parts.netloc + parts.path).split("/")) if each]


def _read(text: str, what: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:
        raise ConfigError(f"{what} is not JSON: {error}", hint=MALFORMED) from None
    if not isinstance(document, dict):
        raise ConfigError(f"{what} is not a JSON object", hint=MALFORMED)
    return document


def _specification(document: Mapping[str, Any], schemas: Iterable[Mapping[str, Any]]) -> Specification[Any]:
    """Return the draft that a document declares, or else the oldest draft with all keywords of the document."""
    declared = document.get("$schema")
    if isinstance(declared, str):
        return specification_with(declared, default=DRAFT202012)
    if any(word in schema for schema in schemas for word in _LATER):
        return DRAFT202012
    return DRAFT4 if isinstance(document.get("id"), str) and "$id" not in document else DRAFT7


def _check(document: dict[str, Any]) -> list[dict[str, Any]]:
    schemas: list[dict[str, Any]] = []
    left: list[tuple[Any, Pointer]] = [(document, Pointer())]
    while left:
        schema, pointer = left.pop()
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            raise malformed(pointer, "a schema has to be an object, true or false")
        if pointer.level > DEEPEST:
            raise too_deep()
        _check_words(schema, pointer)
        schemas.append(schema)
        left += _schemas_in(schema, pointer)
    return schemas


def _check_words(schema: dict[str, Any], pointer: Pointer) -> None:
    for word in _TEXTS:
        if not isinstance(schema.get(word, ""), str):
            raise malformed(pointer.below(word), "it has to be text")
    try:
        urlsplit(schema.get("$id", ""))
    except ValueError:
        raise malformed(pointer.below("$id"), "it has to be an address") from None
    types = schema.get("type", [])
    words = [types] if isinstance(types, str) else types
    if not isinstance(words, list) or ("type" in schema and not words):
        raise malformed(pointer.below("type"), "it has to be a type or a list of types")
    if unknown := [word for word in words if word not in (*TYPES, "any")]:
        raise malformed(pointer.below("type"), f"{str(unknown[0])[:50]!r} has to be one of {', '.join(TYPES)}")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise malformed(pointer.below("required"), "it has to be a list of names, as since draft 4")
    if not isinstance(schema.get("enum", []), list):
        raise malformed(pointer.below("enum"), "it has to be a list of values")


def _schemas_in(schema: dict[str, Any], pointer: Pointer) -> Iterator[tuple[Any, Pointer]]:
    for word in (*_MAPS, "dependencies"):
        inside = schema.get(word, {})
        if not isinstance(inside, dict):
            raise malformed(pointer.below(word), "it has to be an object of schemas")
        for key, each in inside.items():
            if not (word == "dependencies" and isinstance(each, list)):
                yield each, pointer.below(word, key)
    for word in _LISTS:
        several = schema.get(word, [])
        if not isinstance(several, list) or (word in schema and not several):
            raise malformed(pointer.below(word), "it has to be a list of schemas")
        yield from ((each, pointer.below(word, str(at))) for at, each in enumerate(several))
    for word in _SCHEMAS:
        if word in schema:
            yield schema[word], pointer.below(word)
    items = schema.get("items", True)
    if isinstance(items, list):
        yield from ((each, pointer.below("items", str(at))) for at, each in enumerate(items))
    else:
        yield items, pointer.below("items")
