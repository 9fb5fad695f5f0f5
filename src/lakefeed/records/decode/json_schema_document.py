"""The documents of a JSON Schema: reads them, checks their shapes, and resolves references."""

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
"""The resolver of ``referencing``, whose class is not public: it resolves references from one place of a document."""

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_LEGACY = (DRAFT3, DRAFT4, DRAFT6, DRAFT7)
# Only later drafts have these keywords; they show the draft of a schema without ``$schema``.
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
    """A place in a schema, for error messages; ``level`` is the number of schemas around it."""

    steps: tuple[str, ...] = ()
    level: int = 0

    def below(self, *steps: str) -> Pointer:
        return Pointer((*self.steps, *steps), self.level + 1)

    def __str__(self) -> str:
        shown = self.steps if len(self.steps) <= 16 else (*self.steps[:8], "…", *self.steps[-8:])
        return "#" + "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in shown)


def malformed(pointer: Pointer, what: str) -> ConfigError:
    return ConfigError(f"The JSON Schema is malformed at {pointer}: {what}", hint="correct and register it again")


def too_deep() -> ConfigError:
    return ConfigError(
        f"The JSON Schema is nested deeper than {DEEPEST} levels",
        hint="describe what is deeper as an object without properties: it becomes a column of JSON text",
    )


class SchemaDocuments:
    """A JSON Schema and the schemas that it refers to, by their names in ``$ref``."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        self._legacy: dict[int, bool] = {}
        self.root = _read(text, "the JSON Schema")
        self._resources = {"": self._resource(self.root)}
        for name, referred in references.items():
            self._resources[name] = self._resource(_read(referred, f"the referred schema {name}"))
        for resource in tuple(self._resources.values()):
            if (identity := resource.id()) is not None:
                self._resources.setdefault(identity.rstrip("#"), resource)
        registry: Registry[Any] = Registry(retrieve=self._retrieve)  # type: ignore[call-arg]
        registry = registry.with_resources(self._resources.items())
        self.resolver: Resolver = registry.resolver_with_root(self._resources[""])

    def is_legacy(self, schema: Mapping[str, Any]) -> bool:
        """Return whether a part of these documents has draft 7 or older, which ignores keywords beside ``$ref``."""
        return self._legacy.get(id(schema), False)

    def inside(self, schema: dict[str, Any], resolver: Resolver) -> Resolver:
        """Return the resolver for the references in ``schema``; the schema may have its own base."""
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
                found = lookup_recursive_ref(resolver) if word == "$recursiveRef" else resolver.lookup(schema[word])
            except (Unresolvable, ValueError, LookupError, TypeError, AttributeError):
                found = None
            if found is None or not isinstance(found.contents, dict | bool):
                raise ConfigError(
                    f"The JSON Schema refers to {schema[word]}, which is nowhere",
                    where=str(path),
                    hint="register it as a reference of the schema, or correct $ref",
                )
            yield found.contents, found.resolver

    def _resource(self, document: dict[str, Any]) -> Resource[Any]:
        schemas = _check(document)
        specification = _specification(document, schemas)
        self._legacy.update((id(schema), specification in _LEGACY) for schema in schemas)
        return specification.create_resource(document)

    def _retrieve(self, uri: str) -> Resource[Any]:
        """Find the document of an address without an exact match, by the longest common end of the paths."""

        def same(key: str) -> int:
            return sum(1 for _ in takewhile(lambda two: two[0] == two[1], zip(_path(uri), _path(key), strict=False)))

        best = max(self._resources, key=same)
        if not same(best):
            raise NoSuchResource(ref=uri)  # type: ignore[call-arg]
        return self._resources[best]


def _path(uri: str) -> list[str]:
    """Return the parts of an address in reverse order."""
    parts = urlsplit(uri)
    return [each for each in reversed((parts.netloc + parts.path).split("/")) if each]


def _read(text: str, what: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:
        raise ConfigError(f"{what} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{what} is not a JSON object")
    return document


def _specification(document: Mapping[str, Any], schemas: Iterable[Mapping[str, Any]]) -> Specification[Any]:
    """Return the draft of a document: the one that it declares, or the oldest draft that has all its keywords."""
    said = document.get("$schema")
    if isinstance(said, str):
        return specification_with(said, default=DRAFT202012)
    if any(word in schema for schema in schemas for word in _LATER):
        return DRAFT202012
    return DRAFT4 if isinstance(document.get("id"), str) and "$id" not in document else DRAFT7


def _check(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all schemas in a document, after a check of their shapes."""
    found: list[dict[str, Any]] = []
    left: list[tuple[Any, Pointer]] = [(document, Pointer())]
    while left:
        schema, pointer = left.pop()
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            raise malformed(pointer, "a schema is an object, true or false")
        if pointer.level > DEEPEST:
            raise too_deep()
        _check_words(schema, pointer)
        found.append(schema)
        left += _schemas_in(schema, pointer)
    return found


def _check_words(schema: dict[str, Any], pointer: Pointer) -> None:
    for word in _TEXTS:
        if not isinstance(schema.get(word, ""), str):
            raise malformed(pointer.below(word), "it is text")
    try:
        urlsplit(schema.get("$id", ""))
    except ValueError:
        raise malformed(pointer.below("$id"), "it is no address") from None
    said = schema.get("type", [])
    words = [said] if isinstance(said, str) else said
    if not isinstance(words, list) or ("type" in schema and not words):
        raise malformed(pointer.below("type"), "it is a type or a list of types")
    if unknown := [word for word in words if word not in (*TYPES, "any")]:
        raise malformed(pointer.below("type"), f"{str(unknown[0])[:50]!r} is none of {', '.join(TYPES)}")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise malformed(pointer.below("required"), "it is a list of names (as of draft 4)")
    if not isinstance(schema.get("enum", []), list):
        raise malformed(pointer.below("enum"), "it is a list of values")


def _schemas_in(schema: dict[str, Any], pointer: Pointer) -> Iterator[tuple[Any, Pointer]]:
    for word in (*_MAPS, "dependencies"):
        inside = schema.get(word, {})
        if not isinstance(inside, dict):
            raise malformed(pointer.below(word), "it is an object of schemas")
        for key, each in inside.items():
            if not (word == "dependencies" and isinstance(each, list)):
                yield each, pointer.below(word, key)
    for word in _LISTS:
        several = schema.get(word, [])
        if not isinstance(several, list) or (word in schema and not several):
            raise malformed(pointer.below(word), "it is a list of schemas")
        yield from ((each, pointer.below(word, str(at))) for at, each in enumerate(several))
    for word in _SCHEMAS:
        if word in schema:
            yield schema[word], pointer.below(word)
    items = schema.get("items", True)
    if isinstance(items, list):
        yield from ((each, pointer.below("items", str(at))) for at, each in enumerate(items))
    else:
        yield items, pointer.below("items")
