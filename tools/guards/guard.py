"""One guard, and how to write it down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Guard:
    """One guard.

    Attributes:
        name: what it keeps from happening.
        file: where it is.
        code: its text, which the file has once.
        instead: what stands there when it is disabled.
        tests: of these at least one must fail.
    """

    name: str
    file: str
    code: str
    instead: str
    tests: tuple[str, ...]

    def removed_from(self, source: str) -> str:
        """The source without the guard.

        Raises:
            ValueError: the source has no such guard, or several.
        """
        if source.count(self.code) != 1:
            raise ValueError(f"{self.file} has {source.count(self.code)} times what guard '{self.name}' is to be")
        return source.replace(self.code, self.instead)


def java(name: str, file: str, code: str, instead: str, *tests: str) -> Guard:
    """A guard in the JVM module, or in that of the plug-in with the package's name."""
    part = file.partition("/")[0]
    folder = f"packages/{part}/" if Path(f"packages/{part}/jvm").is_dir() else ""
    return Guard(name, f"{folder}jvm/src/main/java/io/lakefeed/{file}.java", code, instead, tests)


def plugin(part: str, name: str, file: str, code: str, instead: str, *tests: str) -> Guard:
    """A guard in the Python package of a plug-in."""
    return Guard(name, f"packages/{part}/src/lakefeed_{part}/{file}.py", code, instead, tests)


def python(name: str, file: str, code: str, instead: str, *tests: str) -> Guard:
    """A guard in the Python package."""
    return Guard(name, f"src/lakefeed/{file}.py", code, instead, tests)
