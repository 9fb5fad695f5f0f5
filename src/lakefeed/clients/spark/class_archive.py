"""Let the driver's JVM map the classes of Spark and Iceberg from a class-data archive instead of loading them.

The JVM only reads an archive that was written with the same class path, jars (sizes and times) and Java version. The
archive's file name contains a digest of these three, so another set of jars gets another archive. Writing takes a
minute of CPU, so only ``lakefeed jars archive`` does it, or ``LAKEFEED_CLASS_ARCHIVE=write`` before a run that ends by
itself.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from lakefeed.clients.spark.jars import cache_directory

CLASS_PATH, OPTIONS = "spark.driver.extraClassPath", "spark.driver.extraJavaOptions"
VARIABLE = "LAKEFEED_CLASS_ARCHIVE"
WRITE, OFF = "write", "off"
MOST_KEPT = 3
# The JVM writes warnings of classes that it cannot archive to stdout, which the command needs for its own output.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_END_SECONDS = 600


def archives() -> list[Path]:
    """Return the files of the archives in the cache, newest first."""
    folder = cache_directory() / "classes"
    return sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)


class ClassArchive:
    """The archive of the classes of one class path, for a JVM that reads or writes the archive."""

    def __init__(self, path: Path, *, writes: bool = False) -> None:
        self.path, self.writes = path, writes
        # The JVM writes this file when it ends. Then the complete file is renamed to the archive's name.
        self._part = path.with_suffix(f".{os.getpid()}.part")

    @classmethod
    def of(cls, conf: Mapping[str, str], *, java: Path, spark_home: Path) -> ClassArchive | None:
        """Return the archive that a JVM with these settings shall read or write; None if it shall use no archive."""
        requested = os.environ.get(VARIABLE)
        if requested == OFF or CLASS_PATH not in conf:
            return None
        jars = [Path(jar) for jar in conf[CLASS_PATH].split(os.pathsep)]
        try:
            path = cache_directory() / "classes" / f"{_digest(jars, java=java, spark_home=spark_home)}.jsa"
            if path.exists() and requested != WRITE:
                return cls(path)
        except OSError:
            return None
        return cls(path, writes=True) if requested == WRITE else None

    def added_to(self, conf: Mapping[str, str]) -> dict[str, str]:
        """Return the settings with the archive's JVM options, placed before the JVM options of the user."""
        use = f"-XX:ArchiveClassesAtExit={self._part}" if self.writes else f"-XX:SharedArchiveFile={self.path}"
        return {**conf, OPTIONS: f"{use} {_QUIET} {conf.get(OPTIONS, '')}".rstrip()}

    def prepare(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in archives()[MOST_KEPT - 1 :]:
            old.unlink(missing_ok=True)

    def finish_at_exit(self, jvm: subprocess.Popen[bytes]) -> None:
        """At the end of this process, wait for the JVM's end, and rename the file that the JVM has written."""

        def finish() -> None:
            if jvm.stdin is not None:
                jvm.stdin.close()
            try:
                jvm.wait(_END_SECONDS)
                self._part.replace(self.path)
            except (OSError, subprocess.TimeoutExpired):
                self._part.unlink(missing_ok=True)

        atexit.register(finish)


def _digest(jars: Iterable[Path], *, java: Path, spark_home: Path) -> str:
    home = java.resolve().parents[1]
    files = [home / "lib" / "modules", *jars, *sorted((spark_home / "jars").iterdir())]
    states = [(str(file), status.st_size, status.st_mtime_ns) for file in files for status in [file.stat()]]
    return hashlib.sha256(repr(states).encode()).hexdigest()[:24]
