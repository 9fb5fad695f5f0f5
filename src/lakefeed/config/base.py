"""Base classes of the models of the configuration, the problems that validators report, and descriptions of fields."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from lakefeed import plugins
from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Built = TypeVar("Built", bound="Model")
Registered = TypeVar("Registered", bound="Model")


class Model(BaseModel):
    """A frozen model that refuses unknown keys. The docstring below a field describes it: see ``descriptions``."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
        # No validator for each block: the whole pipeline's model builds all of them. A start takes 0.3 s less.
        defer_build=True,
    )

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        """Yield a problem for each contradiction in the block; a problem that is a text gets the block's name."""
        return iter(())

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        found: list[ConfigProblem] = []
        for problem in self._contradictions():
            if isinstance(problem, ConfigProblem):
                found.append(problem)
            elif not found:
                raise ValueError(problem)
        raise_problems(found)
        return self


@dataclass(frozen=True)
class ConfigProblem:
    """A mistake in the value that a validator checks.

    Attributes:
        what: the mistake in one sentence, without a full stop and without any secret.
        key: the key or index of the wrong entry in the value; None if the value itself is wrong.
        hint: what to do next.
    """

    what: str
    _: KW_ONLY
    key: str | int | None = None
    hint: str | None = None


class ConfigProblems(ValueError):
    """A validator's error with several problems, or with a problem that has a key or a hint."""

    def __init__(self, *problems: ConfigProblem) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{each.what} ({each.hint})" if each.hint else each.what for each in problems))


def raise_problems(problems: Iterable[ConfigProblem]) -> None:
    if found := list(problems):
        raise ConfigProblems(*found)


def checked(check: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that returns the value unchanged, unless ``check`` raises a ValueError."""

    def validate(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(validate)


def spelled(pattern: str, message: str) -> AfterValidator:
    """Return a validator that refuses a text unless all of it matches; ``{}`` in ``message`` is the text."""

    def check(text: str) -> None:
        if not re.fullmatch(pattern, text):
            raise ValueError(message.replace("{}", text))

    return checked(check)


def nearest(word: str, names: Iterable[str], *, separator: str = "_") -> str | None:
    """Return the name most similar to ``word``, or None; ``separator`` is the sign between words in the names."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[._\- ]", separator, word).lower()
    return next(iter(difflib.get_close_matches(plain, list(names), n=1, cutoff=0.7)), None)


def leaves(value: object, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value in a model, at any depth, as a pair with the name of the nearest field or key above it."""
    below: Iterable[tuple[str, object]]
    if isinstance(value, BaseModel):
        below = ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping):
        below = ((str(name), entry) for name, entry in value.items())
    elif isinstance(value, list | tuple):
        below = ((key, entry) for entry in value)
    else:
        yield key, value
        return
    for name, entry in below:
        yield from leaves(entry, name)


class ParsedText:
    """A value that is a text in the file and an object in the models.

    A subclass is a frozen dataclass; ``parse`` must read its ``str`` back as an equal value.
    """

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Parse the text, and return the object."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return a schema that accepts the object or its text, and writes the text to JSON."""
        parsed = core_schema.no_info_after_validator_function(cls._parse_item, core_schema.str_schema())
        return core_schema.json_or_python_schema(
            json_schema=parsed,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), parsed]),
            serialization=core_schema.to_string_ser_schema(),
        )

    @classmethod
    def _parse_item(cls, text: str) -> Self:
        try:
            return cls.parse(text)
        except ValueError as error:
            # Do not raise ValueError: pydantic adds the setting's name to its message, and an item of a list has none.
            raise ConfigProblems(ConfigProblem(str(error))) from None


class OneOf(Model):
    """A block that holds exactly one of several kinds, such as ``sink: {iceberg: {...}}``.

    ``__kinds__`` names the fields that are kinds. Default: all fields of the direct subclass of ``OneOf``. Fields that
    its subclasses add are settings of the block itself."""

    __kinds__: tuple[str, ...] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        cls.__kinds__ = cls.__kinds__ or tuple(field.alias or name for name, field in cls.model_fields.items())

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        """Return the names of all kinds, including the kinds of installed packages."""
        return cls.__kinds__

    @classmethod
    def installed_kind(cls, name: str) -> type[BaseModel] | None:
        """Return the model of a kind of an installed package, or None."""
        return None

    @classmethod
    def unknown_kind(cls, name: str) -> tuple[str, str] | None:
        """Return the message and the hint for an unknown kind; None if the usual message fits."""
        return None

    @model_validator(mode="before")
    @classmethod
    def _kind_without_settings(cls, data: Any) -> Any:
        """Replace ``decode: raw`` or an empty ``raw:`` by a block, for kinds without required settings."""
        if isinstance(data, str) and data in cls.__kinds__:
            return {data: {}}
        if isinstance(data, dict):
            given = [kind for kind in cls.__kinds__ if kind in data]
            if len(given) == 1 and data[given[0]] is None:
                return {**data, given[0]: {}}
        return data

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        given = self._given()
        if len(given) != 1:
            have = f"has {' and '.join(given)}" if given else "has none"
            yield f"exactly one of {', '.join(self.kinds())} is required; this block {have}"

    def _given(self) -> list[str]:
        names = {field.alias or name: name for name, field in type(self).model_fields.items()}
        return [kind for kind in self.__kinds__ if getattr(self, names[kind]) is not None]

    @property
    def kind(self) -> str:
        return self._given()[0]


def model_of_package(
    entry: EntryPoint, base: type[Registered], what: str, *, key: str | None = None
) -> type[Registered]:
    """Import the model that a package registers for a block or a kind.

    Raises:
        ConfigProblems: the package cannot be imported, or the entry point names no subclass of ``base``; the problem is
            at ``key``.
    """
    try:
        found = entry.load()
    except Exception as error:
        reason = f"the package of the {what} '{entry.name}' cannot be imported: {error}"
        hint = f"reinstall the package of {entry.value}, or one of its dependencies"
        raise ConfigProblems(ConfigProblem(reason, key=key, hint=hint)) from None
    if not (isinstance(found, type) and issubclass(found, base)):
        reason = f"the entry point of the {what} '{entry.name}' is not a subclass of {base.__module__}.{base.__name__}"
        raise ConfigProblems(ConfigProblem(reason, key=key, hint=f"correct the package of {entry.value}"))
    return found


def validated(model: type[Built], where: str, **settings: Any) -> Built:
    """Build a model from arguments; raise a ConfigError at ``where`` if they are invalid."""
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(str(part) for part in each['loc'])}: {each['msg'].removeprefix('Value error, ')}".lstrip(": ")
            for each in error.errors(include_input=False, include_url=False)
        )
        raise ConfigError(mistakes, where=where) from None


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the fields' descriptions by their keys in a file: ``description=``, or else the field's docstring."""
    below: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        below |= _docstrings(kind) if issubclass(kind, BaseModel) and kind is not BaseModel else {}
    texts = {field.alias or name: field.description or below.get(name) for name, field in model.model_fields.items()}
    return {key: text for key, text in texts.items() if text}


def summary(model: type[BaseModel]) -> str:
    """Return the first paragraph of a model's docstring on one line."""
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields that the class itself declares; an empty text if there is none."""
    body = _classes(model.__module__).get(model.__qualname__, [])
    texts = {}
    for statement, below in zip_longest(body, body[1:]):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = inspect.cleandoc(text)
            case ast.AnnAssign(target=ast.Name(id=name)), _:
                texts[name] = ""
    return texts


@cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        return {}  # The module has no source, as in a frozen application.
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


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
