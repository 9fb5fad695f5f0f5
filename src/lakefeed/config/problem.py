"""The mistakes of a pipeline as ``Problem``, each with its place in the file; one run shows all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from lakefeed.errors import ConfigError, LakefeedError, UserError, WorldError
from lakefeed.messages.pages import GENERAL, page_of_setting, page_of_text
from lakefeed.messages.printable import shortened
from lakefeed.plugins import page_of_kind


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A mistake in a pipeline file, or in a server or file that it names.

    Attributes:
        what: the mistake in one sentence without a full stop.
        file: the file's path; ``--set key`` for an override; None for a problem outside of the file.
        line: the line, counted from 1 as ``column`` is; None if the problem has no line.
        key: the setting's dotted path, such as ``source.kafka.topics``; empty for the whole file.
        hint: what to do next.
        about: the endpoint, bucket or file that a check before the start has tried to reach; None for other problems.
        severity: error or warning; a pipeline with warnings can run.
        error: the exception to raise if this is the only problem.
        page: the topic of the page about the problem; used if no page is about the setting.
    """

    what: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    key: str = ""
    hint: str | None = None
    about: str | None = None
    severity: Literal["error", "warning"] = "error"
    error: type[LakefeedError] = ConfigError
    page: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "what", shortened(self.what))

    @classmethod
    def of(cls, error: LakefeedError, *, key: str) -> Problem:
        """Return an error as a problem of the setting ``key``."""
        return cls(
            what=error.what, key=key, hint=error.hint, about=error.where, error=type(error), page=error.page_topic
        )

    @property
    def where(self) -> str:
        """``file:line:column`` without unknown parts; editors and terminals make this form clickable."""
        parts = [self.file or self.key or "pipeline", self.line, self.column]
        return ":".join(str(part) for part in parts if part is not None)

    def __str__(self) -> str:
        hint = f"\n  next: {self.hint}" if self.hint else ""
        about = f" ({self.about})" if self.about else ""
        return f"{self.where}: {self.severity}: {self.what}{about}{hint}"

    def as_dict(self) -> dict[str, Any]:
        names = ("file", "line", "column", "key", "severity", "error", "what", "about", "hint")
        return {name: getattr(self, name) for name in names} | {"error": self.error.__name__}


def errors_of(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]


def exit_status(problems: Iterable[Problem]) -> int:
    """Return 2 if the user can fix one of the errors, 1 if only servers fail, 0 without errors."""
    return max((problem.error.exit_status for problem in errors_of(problems)), key=(0, 1, 2).index, default=0)


def raise_first_error(problems: Iterable[Problem]) -> None:
    """Raise one exception for all errors among the problems; ignore warnings.

    Raises:
        LakefeedError: one error raises its own class; several errors raise the class that they share. Without a shared
            class it is a WorldError if only servers fail, a ConfigError if one of the errors is in the file, and else
            a UserError.
    """
    errors = errors_of(problems)
    if not errors:
        return
    if len(errors) == 1:
        only = errors[0]
        where = f"{only.where} ({only.key})" if only.key and only.key != only.where else only.where
        raise only.error(only.what, where=only.about or where, hint=only.hint, page=_page_of(only))
    lines = "\n".join(f"  {line}" for problem in errors for line in str(problem).splitlines())
    shared = _shared_class({problem.error for problem in errors})
    pages = {_page_of(problem) for problem in errors}
    page = pages.pop() if len(pages) == 1 else "pipeline-files" if shared is ConfigError else "check"
    raise shared(f"{len(errors)} problems in the pipeline:\n{lines}", page=page)


def _page_of(problem: Problem) -> str | None:
    own = page_of_text(problem.what) or (None if problem.page in GENERAL else problem.page)
    # A problem between two blocks has no key: find the page by the settings that the problem's text names.
    keys = [problem.key] if problem.key else re.findall(r"[a-z_.]+", problem.what)
    return own or next((page for key in keys if (page := page_of_kind(key) or page_of_setting(key))), problem.page)


def _shared_class(classes: set[type[LakefeedError]]) -> type[LakefeedError]:
    if len(classes) == 1:
        return next(iter(classes))
    if all(issubclass(error, WorldError) for error in classes):
        return WorldError
    return ConfigError if ConfigError in classes else UserError
