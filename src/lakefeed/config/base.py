"""Base classes of the configuration's models, problems that validators report, and descriptions of fields."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic_core import core_schema

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
        # The pipeline's model builds all blocks' validators once: commands start a third of a second earlier.
        defer_build=True,
    )

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        """Yield a problem for each broken rule between the block's settings; a plain text is shown with its name."""
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
        key: the key or index of the wrong entry in the value; None for the value itself.
        hint: what to do next.
    """

    what: str
    _: KW_ONLY
    key: str | int | None = None
    hint: str | None = None


class ConfigProblems(ValueError):
    """The error of a validator that reports several problems, or a problem with a key or a hint."""

    def __init__(self, *problems: ConfigProblem) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{each.what} ({each.hint})" if each.hint else each.what for each in problems))


def raise_problems(problems: Iterable[ConfigProblem]) -> None:
    """Raise the problems as ``ConfigProblems`` if there are any."""
    if found := list(problems):
        raise ConfigProblems(*found)


def checked(check: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that accepts a value if ``check`` raises no ValueError for it."""

    def validate(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(validate)


def spelled(pattern: str, message: str) -> AfterValidator:
    """Return a validator for texts that fully match the pattern; ``{}`` in the message stands for the text."""

    def check(text: str) -> None:
        if not re.fullmatch(pattern, text):
            raise ValueError(message.replace("{}", text))

    return checked(check)


def nearest(word: str, names: Iterable[str], *, separator: str = "_") -> str | None:
    """Return the name most similar to a word, or None; ``separator`` stands between the words of the names."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[._\- ]", separator, word).lower()
    return next(iter(difflib.get_close_matches(plain, list(names), n=1, cutoff=0.7)), None)


class ParsedText:
    """A value that is a text in the file and is parsed in the models.

    A subclass is a frozen dataclass; ``parse`` must read its ``str`` back as an equal value.
    """

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Read the text of one value."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return a schema that accepts a value or its text; in JSON the value is its text."""
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
            # A plain ValueError would be reported with the setting's name; an item of a list has none.
            raise ConfigProblems(ConfigProblem(str(error))) from None


class OneOf(Model):
    """A block that holds exactly one of several kinds, such as ``sink: {iceberg: {...}}``.

    ``__kinds__`` names the fields that are kinds, by default all fields of the first subclass. Other fields belong to
    the block itself.
    """

    __kinds__: tuple[str, ...] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        cls.__kinds__ = cls.__kinds__ or tuple(field.alias or name for name, field in cls.model_fields.items())

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        """Return the names of all kinds, also of those that other packages register."""
        return cls.__kinds__

    @classmethod
    def installed_kind(cls, name: str) -> type[BaseModel] | None:
        """Return the model of a kind that another package registers; None if no package does."""
        return None

    @classmethod
    def unknown_kind(cls, name: str) -> tuple[str, str] | None:
        """Return the message and the hint for an unknown kind; None for the usual message."""
        return None

    @model_validator(mode="before")
    @classmethod
    def _kind_without_settings(cls, data: Any) -> Any:
        """Replace ``decode: raw`` or an empty ``raw:`` by a block, for kinds that need no settings."""
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
        """The kind that this block holds, as the file writes it."""
        return self._given()[0]


def model_of_package(
    entry: EntryPoint, base: type[Registered], what: str, *, key: str | None = None
) -> type[Registered]:
    """Return the model that a package registers for a block or a kind; problems are reported at ``key``.

    Raises:
        ConfigProblems: the package cannot be imported, or the entry point names no subclass of ``base``.
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
    """Return the fields' descriptions by their keys in a file: ``description=``, else the docstring below."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, BaseModel) and kind is not BaseModel:
            for name, text in _docstrings(kind).items():
                found.pop(name, None)
                found.update({name: text} if text else {})
    texts = {name: field.description or found.get(name) for name, field in model.model_fields.items()}
    return {model.model_fields[name].alias or name: text for name, text in texts.items() if text}


def summary(model: type[BaseModel]) -> str:
    """Return the first paragraph of a model's docstring on one line."""
    return (model.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields that a class itself declares; an empty text if there is none."""
    body = _classes(model.__module__).get(model.__qualname__, [])
    found = {}
    for statement, below in zip_longest(body, body[1:]):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            value = below.value if isinstance(below, ast.Expr) else None
            text = value.value if isinstance(value, ast.Constant) else None
            found[statement.target.id] = inspect.cleandoc(text) if isinstance(text, str) else ""
    return found


@cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of a module's classes, by class name."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        # The module has no source, as in a frozen application.
        return {}
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
