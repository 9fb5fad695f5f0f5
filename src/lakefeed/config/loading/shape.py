"""Finds in the models which places a pipeline file can have, and which types each place accepts."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from lakefeed.config.base import ConfigProblems, OneOf, ParsedText

Place = tuple[str | int, ...]

_WORDS: dict[Any, str] = {
    str: "text",
    SecretStr: "text",
    Path: "the path of a file",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    datetime: "a time",
    Any: "any value",
}


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the member types of an annotation's union, without None and without Annotated's metadata."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(each for part in typing.get_args(annotation) if part is not type(None) for each in members(part))
    if isinstance(annotation, type) and issubclass(annotation, ParsedText):
        return (str,)
    return (annotation,)


def is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the first model among an annotation's types, or None."""
    return next((each for each in members(annotation) if is_model(each)), None)


def fields(model: type[BaseModel] | None) -> dict[str, FieldInfo]:
    """Return a model's fields by their keys in the file, including kinds of installed packages; empty for None."""
    if model is None:
        return {}
    found = {field.alias or name: field for name, field in model.model_fields.items()}
    if issubclass(model, OneOf):
        for name in model.kinds():
            if name in found:
                continue
            with suppress(ConfigProblems):  # The validation of the block reports a package that cannot be imported.
                found[name] = FieldInfo(annotation=model.installed_kind(name), default=None)
    return found


def step(annotation: Any, segment: str | int) -> Any | None:
    """Return the type of a block's key or of a list's item; None if ``annotation`` has no such entry."""
    if model := model_of(annotation):
        field = fields(model).get(str(segment))
        return field and field.annotation
    return free_form(annotation) or (items(annotation) if isinstance(segment, int) else None)


def at(root: Any, place: Place) -> Any | None:
    """Return the type at ``place`` below ``root``; None if there is no such place."""
    annotation = root
    for segment in place:
        annotation = step(annotation, segment)
        if annotation is None:
            return None
    return annotation


def is_secret(annotation: Any) -> bool:
    return SecretStr in members(annotation)


def accepts_text(annotation: Any) -> bool:
    """Return whether text is accepted; the value of ``${NAME}`` then stays text and is not read as a number."""
    return bool(choices(annotation)) or any(each in (str, SecretStr, Path, Any) for each in members(annotation))


def _arguments(annotation: Any, origin: Any) -> tuple[Any, ...]:
    """Return the arguments of the first generic type with this origin, such as ``dict``; empty without one."""
    return next((typing.get_args(each) for each in members(annotation) if typing.get_origin(each) is origin), ())


def free_form(annotation: Any) -> Any | None:
    """Return the type of the values in a block with free keys, such as Kafka options; None for other types."""
    return next(iter(_arguments(annotation, dict)[1:]), None)


def items(annotation: Any) -> Any | None:
    """Return the type of a list's items; None for other types."""
    return next(iter(_arguments(annotation, list)), None)


def choices(annotation: Any) -> list[str]:
    """Return the allowed words of a choice; empty for other types."""
    literals = [each for each in members(annotation) if typing.get_origin(each) is Literal]
    return [str(word) for each in literals for word in typing.get_args(each)]


def expected(annotation: Any) -> str:
    """Describe the accepted values for an error message."""
    if words := choices(annotation):
        return f"one of {', '.join(words)}"
    phrases = []
    for each in members(annotation):
        if is_model(each):
            phrases.append(f"a block with {', '.join(fields(each))}" if fields(each) else "an empty block")
        elif (item := items(each)) is not None:
            phrases.append(f"a list, each item {expected(item)}")
        elif free_form(each) is not None:
            phrases.append("a block of 'name: value' lines")
        else:
            phrases.append(_WORDS.get(each, str(each)))
    return " or ".join(dict.fromkeys(phrases))


def walk(model: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Yield all fields below a model with their places; ``<name>`` stands for a free key."""
    for name, field in fields(model).items():
        here = (*place, name)
        yield here, field
        if below := model_of(field.annotation):
            yield from walk(below, here)
        elif (values := free_form(field.annotation)) is not None and (below := model_of(values)):
            yield from walk(below, (*here, "<name>"))


def dotted(place: Place) -> str:
    """Return a place as a dotted text, as in messages and in ``--set``."""
    return ".".join(str(segment) for segment in place)
