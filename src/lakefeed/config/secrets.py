"""Distinguishes secret settings from public ones, by the same rule for printed text, command lines and messages.

A named setting such as ``password`` is secret by its type, ``SecretStr``. In blocks with free keys, a value from
``${…}`` is secret, and so is the value of a key that names a secret; such a value may not be written in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, SecretStr, ValidatorFunctionWrapHandler, WrapValidator

from lakefeed.config.base import leaves
from lakefeed.messages.redaction import HIDDEN

# Names of secrets. Spark redacts settings by the same expression, so it must be valid in Java and in Python.
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
"""Finds texts that Spark hides in plans and SQL: names of secrets with values, logins in URLs. Valid in Java, too."""

# The settings that are on the JVM's command line, where all users of the machine can read them.
_LAUNCH = re.compile(
    r"spark\.(master|app\.name|jars(\..+)?|files|archives|submit\..+"
    r"|(driver|executor|yarn\.am)\.(memory|memoryOverhead|cores|extraClassPath|extraLibraryPath)|executor\.instances)"
)
OPTIONS_OF_THE_JVM = re.compile(r"spark\.(driver|executor|yarn\.am)\.(extraJavaOptions|defaultJavaOptions)")

Value = TypeVar("Value")


class SecretText(str):
    """A secret value in a block with free keys. Its repr hides it; code can use it as a text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{HIDDEN}'"


def _keep_secret(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    # Without this function, pydantic would convert the value to a plain str.
    return value if isinstance(value, SecretText) else validate(value)


_KEPT = WrapValidator(_keep_secret)
Text = Annotated[str, _KEPT]
"""A text in a block with free keys; it may be secret."""

Scalar = Annotated[str | int | float | bool, _KEPT]
"""A text, number or boolean in a block with free keys; it may be secret."""


def is_secret(key: str, value: object) -> bool:
    return isinstance(value, SecretText | SecretStr) or SECRET_KEY.search(key) is not None


def shown(settings: Mapping[str, Value]) -> dict[str, Value]:
    return {key: value for key, value in settings.items() if not is_secret(key, value)}


def hidden(settings: Mapping[str, Any]) -> dict[str, SecretStr]:
    return {key: SecretStr(plain(value)) for key, value in settings.items() if is_secret(key, value)}


def plain(value: object) -> str:
    """Return a value as plain text, also if it is secret."""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def keeps_secrets(annotation: Any) -> bool:
    """Return whether values of this type may be secret. Values that a sink stores for all readers may not."""
    return _KEPT in getattr(annotation, "__metadata__", ())


@dataclass(frozen=True)
class SecretsGoElsewhere:
    """Marks values under free keys as public; ``hint`` says where a secret belongs, with ``{}`` for the key."""

    hint: str


def place_of_secrets(annotation: Any, key: str) -> str | None:
    """Return the hint of a type's ``SecretsGoElsewhere``; None if the type has no such mark."""
    marks = (each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, SecretsGoElsewhere))
    return next((mark.hint.replace("{}", key) for mark in marks), None)


def at_launch(key: str) -> bool:
    """Return whether a Spark setting is on the JVM's command line, so that it cannot be secret."""
    return _LAUNCH.fullmatch(key) is not None


def keys_of(model: BaseModel) -> set[str]:
    """Return the free keys in a model that have secret values."""
    return {key for key, value in leaves(model) if isinstance(value, SecretText)}


def texts_of(model: BaseModel) -> set[str]:
    """Return the texts of all secrets in a model."""
    return {plain(value) for _, value in leaves(model) if isinstance(value, SecretStr | SecretText)}


def pattern(keys: Iterable[str]) -> str:
    """Return a Java regular expression that finds names of secrets and exactly these keys."""
    # In Spark's UI, the names of Hadoop's settings lack Spark's prefix.
    bare = {re.sub(r"^spark\.hadoop\.|^spark\.(?=hive\.)", "", key) for key in keys}
    exact = (re.sub(r"([^A-Za-z0-9_-])", r"\\\1", key) for key in sorted(bare))
    # The pattern replaces Spark's default pattern, so repeat the words of that default.
    return "|".join([NAMES, "token", "credential", *(f"(^|\\.){key}$" for key in exact)])
