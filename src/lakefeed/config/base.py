"""What all models of the configuration share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic_core import core_schema

from lakefeed.errors import ConfigError

Built = TypeVar("Built", bound="Model")


class Model(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True, allow_inf_nan=False
    )


@dataclass(frozen=True, kw_only=True)
class Complaint:
    """What a validator has against one entry of the value it looks at.

    Attributes:
        key: the entry's key or index within the value; None for the value itself.
        what: one sentence without a full stop; it never repeats a secret.
        hint: what to do next.
    """

    what: str
    key: str | int | None = None
    hint: str | None = None


class Complaints(ValueError):
    """Raised by a validator that has several things to say, or a hint to give."""

    def __init__(self, complaints: Sequence[Complaint]) -> None:
        self.complaints = tuple(complaints)
        super().__init__("; ".join(f"{each.what} ({each.hint})" if each.hint else each.what for each in complaints))


def entries(items: Any) -> Iterable[tuple[int, Any]]:
    """A list's entries with their numbers; nothing of what is no list."""
    return enumerate(items) if isinstance(items, list) else ()


def complain(complaints: Iterable[Complaint]) -> None:
    """Raises what there is to complain of."""
    if found := list(complaints):
        raise Complaints(found)


class ParsedText:
    """A value that the file writes as a text, and that the models keep parsed.

    A subclass is a frozen dataclass, and its ``str`` is a text that ``parse`` reads as the same value.
    """

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of one value.

        Raises:
            ValueError: the text has another form.
        """
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Take a value, or a text that is parsed; JSON and its schema have the text."""
        parsed = core_schema.no_info_after_validator_function(cls._parsed, core_schema.str_schema())
        return core_schema.json_or_python_schema(
            json_schema=parsed,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), parsed]),
            serialization=core_schema.to_string_ser_schema(),
        )

    @classmethod
    def _parsed(cls, text: str) -> Self:
        try:
            return cls.parse(text)
        except ValueError as error:
            # Without the setting's name before it, which an item of a list does not have.
            raise Complaints([Complaint(what=str(error))]) from None


class OneOf(Model):
    """A block that holds exactly one of several kinds, such as ``sink: {iceberg: {...}}``.

    The fields named in ``__kinds__`` are the kinds; other fields belong to the block itself.
    """

    __kinds__: tuple[str, ...] = ()

    @classmethod
    def installed_kind(cls, name: str) -> type[BaseModel] | None:
        """Return the settings of a kind that another package has registered; None if there is none."""
        return None

    @classmethod
    def unknown_kind(cls, name: str) -> tuple[str, str] | None:
        """Return what to report of a kind that no one has registered, and a hint; None for the usual message."""
        return None

    @model_validator(mode="before")
    @classmethod
    def _kind_without_settings(cls, data: Any) -> Any:
        """A kind without settings may be written ``decode: raw``, or ``raw:`` with nothing behind it."""
        if isinstance(data, str) and data in cls.__kinds__:
            return {data: {}}
        if isinstance(data, dict):
            given = [kind for kind in cls.__kinds__ if kind in data]
            if len(given) == 1 and data[given[0]] is None:
                return {**data, given[0]: {}}
        return data

    @model_validator(mode="after")
    def _exactly_one(self) -> OneOf:
        given = self._given()
        if len(given) != 1:
            have = f"has {' and '.join(given)}" if given else "has none"
            raise ValueError(f"exactly one of {', '.join(self.__kinds__)} is required; this block {have}")
        return self

    def _given(self) -> list[str]:
        names = {field.alias or name: name for name, field in type(self).model_fields.items()}
        return [kind for kind in self.__kinds__ if getattr(self, names[kind]) is not None]

    @property
    def kind(self) -> str:
        """Which of the kinds this block holds, as it is written in the file."""
        return self._given()[0]


def validated(model: type[Built], where: str, **settings: Any) -> Built:
    """A model from arguments.

    Raises:
        ConfigError: they hold a mistake; it does not tell a value, which may be a secret.
    """
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(str(part) for part in each['loc'])}: {each['msg'].removeprefix('Value error, ')}".lstrip(": ")
            for each in error.errors(include_input=False, include_url=False)
        )
        raise ConfigError(mistakes, where=where) from None
