"""Kinds of sources, sinks and formats that installed packages add; an entry point names the model of their settings."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from lakefeed import plugins
from lakefeed.config.base import ConfigProblems, OneOf, model_of_package


class OneOfInstalled(OneOf):
    """A block with exactly one kind: lakefeed's own or that of an installed package."""

    group: ClassVar[str]
    """The entry point group of the kinds."""
    noun: ClassVar[str]
    base: ClassVar[type[BaseModel]]
    """The base class of the models of the kinds."""

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*cls.__kinds__, *plugins.installed_kinds(cls.group)]))

    @classmethod
    def installed_kind(cls, name: str) -> type[Any] | None:
        entry = plugins.installed_kinds(cls.group).get(name)
        return None if entry is None else model_of_package(entry, cls.base, cls.noun, key=name)

    @classmethod
    def unknown_kind(cls, name: str) -> tuple[str, str] | None:
        """Return a message, and a hint: the command that installs the kind, or else the existing kinds."""
        if (command := plugins.missing_kind(cls.group, name)) is not None:
            return f"no such {cls.noun} is installed: '{name}'", command
        hint = f"installed: {', '.join(cls.kinds())}; for another one, pip install its package"
        return f"no such {cls.noun}: '{name}'", hint

    @model_validator(mode="wrap")
    @classmethod
    def _of_another_package(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        """Validate a block with a kind of an installed package by a model that has a field for this kind."""
        given = {data: {}} if isinstance(data, str) else data
        names = [name for name in given if isinstance(name, str)] if isinstance(given, dict) else []
        others = {name: cls.installed_kind(name) for name in names if name not in {*cls.__kinds__, *cls.model_fields}}
        found = {name: settings for name, settings in others.items() if settings is not None}
        if not found:
            return handler(data)
        return cls.with_kinds(tuple(found.items())).model_validate(given, context=info.context)

    @classmethod
    @cache
    def with_kinds(cls, found: tuple[tuple[str, type[BaseModel]], ...]) -> type[Self]:
        """Return a subclass of this model with fields for these kinds."""
        fields: Any = {name: (settings | None, None) for name, settings in found}
        extended = create_model(cls.__name__, __base__=cls, __doc__=cls.__doc__, **fields)
        extended.__kinds__ = (*cls.__kinds__, *(name for name, _ in found))
        return extended

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema with the kinds of installed packages, except kinds that cannot be imported."""
        found = []
        for name in plugins.installed_kinds(cls.group):
            with suppress(ConfigProblems):
                if name not in cls.__kinds__ and (settings := cls.installed_kind(name)) is not None:
                    found.append((name, settings))
        if not found:
            return handler(core)
        extended = cls.with_kinds(tuple(found))
        extended.model_rebuild()
        whole: Any = extended.__pydantic_core_schema__
        inner = whole["schema"] if whole["type"] == "definitions" else whole
        # Remove the reference, so that the extended schema replaces this model's schema.
        unnamed = {key: value for key, value in inner.items() if key != "ref"}
        return handler(unnamed if inner is whole else {**whole, "schema": unnamed})
