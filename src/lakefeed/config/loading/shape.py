"""The shape of the models: what may stand at a place of the file, and where a word belongs."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from lakefeed.config.base import Complaints, OneOf, ParsedText

Place = tuple[str | int, ...]

_WORDS: dict[Any, str] = {
    str: "text",
    SecretStr: "text",
    Path: "the path of a file",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def members(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation unites, without None and without Annotated's metadata."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(each for part in typing.get_args(annotation) if part is not type(None) for each in members(part))
    if isinstance(annotation, type) and issubclass(annotation, ParsedText):
        return (str,)
    return (annotation,)


def optional(annotation: Any) -> bool:
    """Whether None may stand there."""
    return type(None) in typing.get_args(annotation)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The model among an annotation's types, if there is one."""
    for each in members(annotation):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields under the names they have in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def step(annotation: Any, segment: str | int) -> Any | None:
    """What may stand one step below a place, or None if nothing may."""
    if model := model_of(annotation):
        field = fields(model).get(str(segment))
        if field is None and issubclass(model, OneOf):
            return _installed(model, str(segment))
        return field and field.annotation
    for each in members(annotation):
        origin, arguments = typing.get_origin(each), typing.get_args(each)
        if origin is dict:
            return arguments[1]
        if origin is list and isinstance(segment, int):
            return arguments[0]
    return None


def _installed(model: type[OneOf], name: str) -> type[BaseModel] | None:
    try:
        return model.installed_kind(name)
    except Complaints:
        return None  # Validation reports it.


def at(root: Any, place: Place) -> Any | None:
    """What may stand at ``place`` below ``root``, or None if nothing may."""
    annotation = root
    for segment in place:
        annotation = step(annotation, segment)
        if annotation is None:
            return None
    return annotation


def is_secret(annotation: Any) -> bool:
    """Whether the value must never be shown."""
    return SecretStr in members(annotation)


def is_path(annotation: Any) -> bool:
    """Whether the value is the path of a file."""
    return Path in members(annotation)


def accepts_text(annotation: Any) -> bool:
    """Whether a text may stand there, so that a substituted value need not be guessed to be a number."""
    return any(
        each in (str, SecretStr, Path, Any) or typing.get_origin(each) is Literal for each in members(annotation)
    )


def free_form(annotation: Any) -> Any | None:
    """The type of the values where keys are free, such as Kafka options; None elsewhere."""
    for each in members(annotation):
        if typing.get_origin(each) is dict:
            return typing.get_args(each)[1]
    return None


def items(annotation: Any) -> Any | None:
    """The type of a list's items; None for what is no list."""
    for each in members(annotation):
        if typing.get_origin(each) is list:
            return typing.get_args(each)[0]
    return None


def choices(annotation: Any) -> list[str]:
    """The words that may stand there, where they are counted."""
    return [
        str(word)
        for each in members(annotation)
        if typing.get_origin(each) is Literal
        for word in typing.get_args(each)
    ]


def expected(annotation: Any) -> str:
    """What may stand there, in words."""
    if words := choices(annotation):
        return f"one of {', '.join(words)}"
    phrases = []
    for each in members(annotation):
        origin, arguments = typing.get_origin(each), typing.get_args(each)
        if isinstance(each, type) and issubclass(each, BaseModel):
            phrases.append(f"a block with {', '.join(fields(each))}" if fields(each) else "an empty block")
        elif origin is list:
            phrases.append(f"a list, each item {expected(arguments[0])}")
        elif origin is dict:
            phrases.append("a block of 'name: value' lines")
        else:
            phrases.append(_WORDS.get(each, str(each)))
    return " or ".join(dict.fromkeys(phrases))


def walk(model: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every field below a model, with its place; ``<name>`` stands where keys are free."""
    for name, field in fields(model).items():
        here = (*place, name)
        yield here, field
        if below := model_of(field.annotation):
            yield from walk(below, here)
        elif (values := free_form(field.annotation)) is not None and (below := model_of(values)):
            yield from walk(below, (*here, "<name>"))


def dotted(place: Place | tuple[str, ...]) -> str:
    """A place as it is written in messages and in ``--set``."""
    return ".".join(str(segment) for segment in place)
