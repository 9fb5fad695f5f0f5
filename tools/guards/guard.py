"""The class ``Guard``, and functions that declare a guard in the core or in a plug-in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Guard:
    """One guard in the sources.

    Attributes:
        name: the fault that the guard prevents.
        file: the file with the guard.
        code: the source text of the guard, which occurs exactly once in the file.
        instead: the text that replaces `code` to disable the guard.
        tests: at least one of these tests must fail while the guard is disabled.
    """

    name: str
    file: str
    code: str
    instead: str
    tests: tuple[str, ...]

    def removed_from(self, source: str) -> str:
        """Return the source with the guard disabled.

        Raises:
            ValueError: the guard's text is not in the source, or is there several times.
        """
        if source.count(self.code) != 1:
            raise ValueError(
                f"{self.file} has the text of guard '{self.name}' {source.count(self.code)} times, not once"
            )
        return source.replace(self.code, self.instead)


def java(name: str, file: str, code: str, instead: str, *tests: str) -> Guard:
    """Declare a guard in the Java code of the core, or of the plug-in that the file's first folder names."""
    core = f"jvm/src/main/java/io/lakefeed/{file}.java"
    path = core if Path(core).is_file() else f"packages/{file.partition('/')[0]}/{core}"
    return Guard(name, path, code, instead, tests)


def plugin(part: str, name: str, file: str, code: str, instead: str, *tests: str) -> Guard:
    """Declare a guard: ``code`` in a Python file of the plug-in ``part``."""
    return Guard(name, f"packages/{part}/src/lakefeed_{part}/{file}.py", code, instead, tests)


def python(name: str, file: str, code: str, instead: str, *tests: str) -> Guard:
    """Declare a guard: ``code`` in a Python file of the core."""
    return Guard(name, f"src/lakefeed/{file}.py", code, instead, tests)
