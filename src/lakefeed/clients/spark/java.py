"""Which Java runs Spark and the local stack."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lakefeed.errors import JavaError

MINIMUM = 17
"""Spark 4.1 is compiled for Java 17."""

MAXIMUM = 21
"""The newest that Spark 4.1 is tested with; from 24 on Hadoop's ``Subject.getSubject`` throws (JEP 486)."""

_INSTALL = "install Java 17 (Debian: apt install openjdk-17-jre-headless) and set JAVA_HOME to it"
_TIMEOUT_SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    path: Path
    origin: str

    @property
    def answer(self) -> str:
        """Return what ``java -version`` prints, on whichever stream."""
        try:
            done = subprocess.run(
                [str(self.path), "-version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return done.stdout.decode(errors="replace")


def find_java() -> Path:
    """The ``java`` that would be used: that of ``JAVA_HOME``, else the first on ``PATH``; any version."""
    return _candidates()[0].path


def require_java(minimum: int = MINIMUM, *, maximum: int = MAXIMUM) -> Path:
    """Return the ``java`` that would be used, if its major version is in the range."""
    chosen, *others = _candidates()
    answer = chosen.answer
    major = _major(answer)
    if major is not None and minimum <= major <= maximum:
        return chosen.path
    if major is None:
        first_line = (answer.strip().splitlines() or ["nothing"])[0][:200]
        what = f"`java -version` does not say a version but: {first_line}"
    else:
        what = f"Java {major} is too {'old' if major < minimum else 'new'}: {minimum} to {maximum} is needed"
    hint = _INSTALL
    for other in others:
        if (its := _major(other.answer)) is not None and minimum <= its <= maximum:
            hint = f"unset JAVA_HOME: {other.path} from PATH is Java {its}"
    raise JavaError(what, where=f"{chosen.path} (from {chosen.origin})", hint=hint)


def _candidates() -> list[_Candidate]:
    """Return the one that would be used first; then the one on ``PATH`` that ``JAVA_HOME`` hides."""
    on_path = [_Candidate(path=Path(found), origin="PATH")] if (found := shutil.which("java")) else []
    home = os.environ.get("JAVA_HOME")
    if home:
        return [_Candidate(path=Path(home) / "bin" / "java", origin="JAVA_HOME"), *on_path]
    if not on_path:
        raise JavaError("no Java was found: JAVA_HOME is not set and PATH has no java", hint=_INSTALL)
    return on_path


def _major(answer: str) -> int | None:
    """Return 17 for ``openjdk version "17.0.15" 2025-04-15``, 8 for ``java version "1.8.0_412"``."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer)
    if match is None:
        return None
    first, second = match.groups()
    return int(second) if first == "1" and second else int(first)
