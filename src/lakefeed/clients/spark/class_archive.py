"""A class-data archive for the driver's JVM, which maps the classes of Spark and Iceberg instead of loading them.

The JVM reads an archive only if the class path, the jars' sizes and times and its own version are those that it was
made with. An archive is named after these, so that another set of jars gets one of its own. It is made on request
alone, since that takes a minute of CPU: by ``lakefeed jars archive``, or by ``LAKEFEED_CLASS_ARCHIVE=write`` before
a run that ends by itself.
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
# Else the JVM warns on stdout, which is the command's own, of each class that it cannot keep, or of a changed jar.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_END_SECONDS = 600


def archives() -> list[Path]:
    """Return the archives in the cache, the newest first."""
    folder = cache_directory() / "classes"
    return sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)


class ClassArchive:
    """The archive of one class path, of which a JVM reads or writes it."""

    def __init__(self, path: Path, *, writes: bool = False) -> None:
        self.path, self.writes = path, writes
        # The JVM writes into it as it ends, and nothing reads it before it is whole.
        self._part = path.with_suffix(f".{os.getpid()}.part")

    @classmethod
    def of(cls, conf: Mapping[str, str], *, java: Path, spark_home: Path) -> ClassArchive | None:
        """Return the archive that a JVM with these settings reads, or is to write; None for neither."""
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
        """Return the settings with the JVM's options for the archive, before the user's own."""
        use = f"-XX:ArchiveClassesAtExit={self._part}" if self.writes else f"-XX:SharedArchiveFile={self.path}"
        return {**conf, OPTIONS: f"{use} {_QUIET} {conf.get(OPTIONS, '')}".rstrip()}

    def prepare(self) -> None:
        """Make room for an archive that is to be written: the folder, without the oldest ones."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in archives()[MOST_KEPT - 1 :]:
            old.unlink(missing_ok=True)

    def finish_at_exit(self, jvm: subprocess.Popen[bytes]) -> None:
        """Wait for the JVM at the end of this process, and put what it has written in place, whole."""

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
    """Identify Java, Spark and the jars by their names, sizes and times."""
    home = java.resolve().parents[1]
    files = [home / "lib" / "modules", *jars, *sorted((spark_home / "jars").iterdir())]
    found = [(str(file), status.st_size, status.st_mtime_ns) for file in files for status in [file.stat()]]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:24]
