"""Distinguishes secret settings from public ones, by one rule for printed text, command lines and messages.

A named setting such as ``password`` is secret by its type, ``SecretStr``. In blocks with free keys, two kinds of values
are secret: those from ``${…}``, and those whose key is the name of a secret; these may not be written in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, SecretStr, ValidatorFunctionWrapHandler, WrapValidator

from lakefeed.messages.redaction import HIDDEN

# Spark also redacts settings by this expression, so it is valid in Java and in Python.
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
"""The texts that Spark hides in plans and SQL: names of secrets with values, logins in URLs. Valid in Java too."""

# Settings on the JVM's command line. All users of the machine can read them there.
_LAUNCH = re.compile(
    r"spark\.(master|app\.name|jars(\..+)?|files|archives|submit\..+"
    r"|(driver|executor|yarn\.am)\.(memory|memoryOverhead|cores|extraClassPath|extraLibraryPath)|executor\.instances)"
)
OPTIONS_OF_THE_JVM = re.compile(r"spark\.(driver|executor|yarn\.am)\.(extraJavaOptions|defaultJavaOptions)")

Value = TypeVar("Value")


class SecretText(str):
    """A secret value of a block with free keys. It hides in its repr; code can use it as a text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{HIDDEN}'"


def _keep_secret(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    # pydantic would convert a subclass to a plain text.
    return value if isinstance(value, SecretText) else validate(value)


_KEPT = WrapValidator(_keep_secret)
Text = Annotated[str, _KEPT]
"""A text in a block with free keys; it may be secret."""

Scalar = Annotated[str | int | float | bool, _KEPT]
"""A text, number or boolean in a block with free keys; it may be secret."""


def is_secret(key: str, value: object) -> bool:
    """Return whether a free key's value is secret."""
    return isinstance(value, SecretText | SecretStr) or SECRET_KEY.search(key) is not None


def shown(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings that are public."""
    return {key: value for key, value in settings.items() if not is_secret(key, value)}


def hidden(settings: Mapping[str, Any]) -> dict[str, SecretStr]:
    """Return the settings that are secret."""
    return {key: SecretStr(plain(value)) for key, value in settings.items() if is_secret(key, value)}


def plain(value: object) -> str:
    """Return a value as plain text, also if it is secret."""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def keeps_secrets(annotation: Any) -> bool:
    """Return whether values of this type may be secret; they may not if they are stored for all readers."""
    return _KEPT in getattr(annotation, "__metadata__", ())


@dataclass(frozen=True)
class SecretsGoElsewhere:
    """Marks a type of public values with free keys; ``hint`` says where to put a secret, with ``{}`` for its key."""

    hint: str


def place_of_secrets(annotation: Any, key: str) -> str | None:
    """Return the hint of the type's ``SecretsGoElsewhere``; None if it has none."""
    marks = (each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, SecretsGoElsewhere))
    return next((mark.hint.replace("{}", key) for mark in marks), None)


def at_launch(key: str) -> bool:
    """Return whether a Spark setting is on the JVM's command line, so that it cannot be secret."""
    return _LAUNCH.fullmatch(key) is not None


def _secrets(value: Any, key: str = "") -> Iterator[tuple[str, SecretStr | SecretText]]:
    """Yield the secrets below a value, with their keys."""
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
    """Return a Java regular expression that finds names of secrets and exactly these keys."""
    # Spark's UI also shows Hadoop's settings, whose names lack Spark's prefix.
    bare = {re.sub(r"^spark\.hadoop\.|^spark\.(?=hive\.)", "", key) for key in keys}
    exact = (re.sub(r"([^A-Za-z0-9_-])", r"\\\1", key) for key in sorted(bare))
    # This pattern replaces Spark's own, so it also has that one's words.
    return "|".join([NAMES, "token", "credential", *(f"(^|\\.){key}$" for key in exact)])
