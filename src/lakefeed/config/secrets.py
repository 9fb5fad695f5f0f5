"""Which settings are secrets: one rule for what is printed, what stands on a command line, and what messages say.

A setting of its own kind (``password``) is one by its type, ``SecretStr``. In blocks whose keys are free, each value
that comes from ``${…}`` is one, whatever its name; and so is each whose name says so, which may not be written out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, SecretStr, ValidatorFunctionWrapHandler, WrapValidator

from lakefeed.messages.redaction import HIDDEN

# Spark redacts the settings whose name this finds, too: it is Java's syntax as well as Python's.
NAMES = (
    r"(?i)password|passwd|secret|jaas|credentials?$|authorization$|keystore[._-]key$|(^|[._-])token$|sas-token"
    r"|access[._-]?key|api[_-]?key|private[._-]?key|account[._-]?key|sse[._-]key$|user[._-]?info|passphrase"
)
SECRET_KEY = re.compile(NAMES)

# What the JVM has to be launched with. It stands on its command line, which everybody on the machine can read.
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


def _kept(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Keeps it what it is: pydantic makes plain texts of subclasses."""
    return value if isinstance(value, SecretText) else validate(value)


KEPT = WrapValidator(_kept)
Text = Annotated[str, KEPT]
"""A value in a block whose keys are free."""

Scalar = Annotated[str | int | float | bool, KEPT]
"""The same, where numbers stay numbers."""


def is_secret(key: str, value: object) -> bool:
    """Whether the value of a free key is a secret."""
    return isinstance(value, SecretText | SecretStr) or SECRET_KEY.search(key) is not None


def shown(settings: Mapping[str, Value]) -> dict[str, Value]:
    """The settings that everybody may see."""
    return {key: value for key, value in settings.items() if not is_secret(key, value)}


def hidden(settings: Mapping[str, Any]) -> dict[str, SecretStr]:
    """The settings that are secret."""
    return {key: SecretStr(plain(value)) for key, value in settings.items() if is_secret(key, value)}


def plain(value: object) -> str:
    """The value as a text, for the one who needs it."""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def keeps_secrets(annotation: Any) -> bool:
    """Whether values of this type may be secrets: not where they are kept for everybody to see."""
    return KEPT in getattr(annotation, "__metadata__", ())


def at_launch(key: str) -> bool:
    """Whether a Spark setting cannot be a secret, since the JVM's command line has to have it."""
    return _LAUNCH.fullmatch(key) is not None


def keys_of(model: BaseModel) -> set[str]:
    """The free keys below a model whose values are secrets."""
    return {key for key, _ in _free(model)}


def _free(value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _free(getattr(value, name))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(each, SecretText):
                yield str(key), each
            else:
                yield from _free(each)


def texts_of(value: Any) -> set[str]:
    """The secrets below a model."""
    if isinstance(value, SecretStr | SecretText):
        return {plain(value)}
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {text for each in value.values() for text in texts_of(each)}
    if isinstance(value, list | tuple):
        return {text for each in value for text in texts_of(each)}
    return set()


def pattern(keys: Iterable[str]) -> str:
    """A regular expression of Java that finds the names of secrets, and these keys among others."""
    # Hadoop has its settings without Spark's prefix, and Spark's UI shows those too.
    bare = {re.sub(r"^spark\.hadoop\.|^spark\.(?=hive\.)", "", key) for key in keys}
    exact = (re.sub(r"([^A-Za-z0-9_-])", r"\\\1", key) for key in sorted(bare))
    # The words of Spark's own pattern too: what it hides stays hidden.
    return "|".join([NAMES, "token", "credential", *(f"(^|\\.){key}$" for key in exact)])
