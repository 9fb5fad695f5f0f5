"""Finds the sinks of other packages, which register under the entry point group ``lakefeed.sinks``.

An entry point has the sink's name in a pipeline file, and its settings: a subclass of ``SinkConfig``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar

from pydantic import ConfigDict

from lakefeed.config.base import Complaint, Complaints
from lakefeed.config.sinks import EVERY_MODE, SinkConfig
from lakefeed.config.transform import OutputMode

GROUP = "lakefeed.sinks"

_IMPORTS = ContextVar("lakefeed_sink_imports", default=True)


class UnreadSinkConfig(SinkConfig):
    """Settings that were not looked at, since their package must not be imported."""

    model_config = ConfigDict(extra="allow")

    definition: ClassVar[str] = ""

    @property
    def modes(self) -> tuple[OutputMode, ...]:
        """All: the sink was not asked."""
        return EVERY_MODE


def installed_sinks() -> dict[str, EntryPoint]:
    """Return the sinks of installed packages by name; imports none of them."""
    return {each.name: each for each in sorted(entry_points(group=GROUP), key=lambda each: each.name)}


def settings_of(name: str) -> type[SinkConfig] | None:
    """Return the settings of an installed sink; None if no package has one of this name.

    Args:
        name: as the pipeline file has it.

    Raises:
        Complaints: the package cannot be imported, or registers something else.
    """
    entry = installed_sinks().get(name)
    if entry is None:
        return None
    if not _IMPORTS.get():
        return UnreadSinkConfig
    try:
        found = entry.load()
    except Exception as error:
        what = f"the package of the sink '{name}' cannot be imported: {error}"
        hint = "reinstall the package, or one of its dependencies"
        raise Complaints([Complaint(key=name, what=what, hint=hint)]) from None
    if not (isinstance(found, type) and issubclass(found, SinkConfig)):
        what = f"the entry point of the sink '{name}' is not a subclass of lakefeed.config.sinks.SinkConfig"
        raise Complaints([Complaint(key=name, what=what, hint=f"correct the package of {entry.value}")])
    return found


@contextmanager
def without_imports() -> Iterator[None]:
    """Leave the packages of installed sinks alone: their settings are accepted unread."""
    token = _IMPORTS.set(False)
    try:
        yield
    finally:
        _IMPORTS.reset(token)
