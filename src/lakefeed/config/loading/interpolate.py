"""``${NAME}`` and ``${NAME:-default}`` inside the values of a pipeline file.

``$$`` stands for one dollar sign. As in a shell, the default counts when the variable is unset or empty.
Values are replaced after YAML was parsed: a variable can never add keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REFERENCE = re.compile(r"\$\$|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}|(?P<malformed>\$\{[^}]*\}?)")


@dataclass(frozen=True, kw_only=True)
class Interpolation:
    """The outcome for one value.

    Attributes:
        text: the value with its references replaced.
        variables: the names it refers to.
        undefined: those of them that are neither set nor have a default.
        empty: those of them that are set to nothing and have no default.
        malformed: references that are no ``${NAME}`` or ``${NAME:-default}``.
    """

    text: str
    variables: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    malformed: tuple[str, ...] = ()


def interpolate(text: str, *, environment: Mapping[str, str]) -> Interpolation:
    """Replaces the references in ``text``; those that cannot be replaced stay and are reported."""
    variables: list[str] = []
    undefined: list[str] = []
    empty: list[str] = []
    malformed: list[str] = []

    def replacement(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match[0] == "$$":
            return "$"
        if match["malformed"] or (default and "${" in default):
            malformed.append(match[0])
            return match[0]
        variables.append(name)
        value = environment.get(name)
        if default is not None:
            return value or default[2:]
        if value is None:
            undefined.append(name)
            return match[0]
        if not value.strip():
            empty.append(name)
        return value

    replaced = _REFERENCE.sub(replacement, text)
    return Interpolation(
        text=replaced,
        variables=tuple(variables),
        undefined=tuple(dict.fromkeys(undefined)),
        empty=tuple(dict.fromkeys(empty)),
        malformed=tuple(malformed),
    )
