"""Distinguish secret settings from public ones: one rule for printed text, command lines and messages.

A setting of its own kind (``password``) is one by its type, ``SecretStr``. In blocks whose keys are free, each value
that comes from ``${…}`` is one, whatever its name; and so is each whose name says so, which may not be written out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, SecretStr, ValidatorFunctionWrapHandler, WrapValidator

from lakefeed.messages.redaction import HIDDEN

# Spark redacts the settings whose name this finds, too: it is Java's syntax as well as Python's.
NAMES = (
    r"(?i)password|passwd|secret|jaas|credentials?$|authorization$|keystore[._-]key$|(^|[._-])token$|sas-token"
    r"|access[._-]?key|api[_-]?key|private[._-]?key|account[._-]?key|sse[._-]key$|user[._-]?info|passphrase"
)
SECRET_KEY = re.compile(NAMES)

IN_TEXT = (
    r"(?i)(?:password|passwd|passphrase|secret|access[._-]?key|api[._-]?key|private[._-]?key|token|credential"
    r"|jaas\.config)(?:[._-](?:key|id))?[\"']?\s{0,3}[=:]\s{0,3}(?:\"[^\"]*\"|'[^']*'|[^\s,;&\])}'\"]+)"
    r"|//[^/@\s]+@"
)
"""What Spark hides in plans and SQL: such names with their values, and logins in URLs. Java's syntax as well."""

# Settings that the JVM is launched with. They stand on its command line, which all users of the machine can read.
_LAUNCH = re.compile(
    r"spark\.(master|app\.name|jars(\..+)?|files|archives|submit\..+"
    r"|(driver|executor|yarn\.am)\.(memory|memoryOverhead|cores|extraClassPath|extraLibraryPath)|executor\.instances)"
)
OPTIONS_OF_THE_JVM = re.compile(r"spark\.(driver|executor|yarn\.am)\.(extraJavaOptions|defaultJavaOptions)")

Value = TypeVar("Value")


class SecretText(str):
    """A value of a block whose keys are free that must stay secret. Code that needs it reads it as text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{HIDDEN}'"


def _keep_secret(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    # pydantic makes plain texts of subclasses.
    return value if isinstance(value, SecretText) else validate(value)


_KEPT = WrapValidator(_keep_secret)
Text = Annotated[str, _KEPT]
"""A value in a block whose keys are free."""

Scalar = Annotated[str | int | float | bool, _KEPT]
"""The same, where numbers stay numbers."""


def is_secret(key: str, value: object) -> bool:
    """Return whether the value of a free key is a secret."""
    return isinstance(value, SecretText | SecretStr) or SECRET_KEY.search(key) is not None


def shown(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings that are public."""
    return {key: value for key, value in settings.items() if not is_secret(key, value)}


def hidden(settings: Mapping[str, Any]) -> dict[str, SecretStr]:
    """Return the settings that are secret."""
    return {key: SecretStr(plain(value)) for key, value in settings.items() if is_secret(key, value)}


def plain(value: object) -> str:
    """Return the value as a text, readable."""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def keeps_secrets(annotation: Any) -> bool:
    """Return whether values of this type may be secrets: not where they are stored for all readers."""
    return _KEPT in getattr(annotation, "__metadata__", ())


@dataclass(frozen=True)
class SecretsGoElsewhere:
    """Marks the type of values with free keys that are public; ``hint`` says where a secret goes, ``{}`` is its key."""

    hint: str


def place_of_secrets(annotation: Any, key: str) -> str | None:
    """Return the hint of ``SecretsGoElsewhere``, if the type has one."""
    marks = (each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, SecretsGoElsewhere))
    return next((mark.hint.replace("{}", key) for mark in marks), None)


def at_launch(key: str) -> bool:
    """Return whether a Spark setting cannot be a secret, since the JVM's command line has to have it."""
    return _LAUNCH.fullmatch(key) is not None


def _secrets(value: Any, key: str = "") -> Iterator[tuple[str, SecretStr | SecretText]]:
    """Yield the secrets below a value, with the key of each."""
    if isinstance(value, SecretStr | SecretText):
        yield key, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name), name)
    elif isinstance(value, Mapping):
        for name, below in value.items():
            yield from _secrets(below, str(name))
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _secrets(below, key)


def keys_of(model: BaseModel) -> set[str]:
    """Return the free keys below a model whose values are secrets."""
    return {key for key, secret in _secrets(model) if isinstance(secret, SecretText)}


def texts_of(value: Any) -> set[str]:
    """Return the texts of the secrets below a model."""
    return {plain(secret) for _, secret in _secrets(value)}


def pattern(keys: Iterable[str]) -> str:
    """Return a regular expression of Java that finds the names of secrets, and these keys."""
    # Hadoop has its settings without Spark's prefix, and Spark's UI shows those too.
    bare = {re.sub(r"^spark\.hadoop\.|^spark\.(?=hive\.)", "", key) for key in keys}
    exact = (re.sub(r"([^A-Za-z0-9_-])", r"\\\1", key) for key in sorted(bare))
    # The words of Spark's own pattern too: what it hides stays hidden.
    return "|".join([NAMES, "token", "credential", *(f"(^|\\.){key}$" for key in exact)])
