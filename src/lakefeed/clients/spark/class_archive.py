"""Let the driver's JVM map the classes of Spark and Iceberg from a class-data archive instead of loading them.

The JVM reads an archive only if class path, jars (sizes and times) and Java are the same, so the archive's file name
has a digest of them. Without an archive, the JVM lists the classes that it loads, and a package may make an archive
from the list, as lakefeed's package ``deploy`` does.
"""

from __future__ import annotations

import atexit
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from lakefeed.clients.spark.jars import cache_directory

CLASS_PATH, OPTIONS = "spark.driver.extraClassPath", "spark.driver.extraJavaOptions"
VARIABLE = "LAKEFEED_CLASS_ARCHIVE"
WRITE, OFF = "write", "off"
# Silence the JVM's warnings about classes that it cannot archive: it prints them to stdout, among the command's output.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one class path.

    Attributes:
        listed: the file into which the JVM writes the names of its classes; None if the JVM reads the archive.
        of_this_process: the archive of this process's JVM.
    """

    path: Path
    listed: Path | None = None
    of_this_process: ClassVar[ClassArchive | None] = None

    @classmethod
    def of(cls, conf: Mapping[str, str], *, java: Path, spark_home: Path) -> ClassArchive | None:
        """Return the archive of a JVM with these settings; None if archives are off or the cache is read-only."""
        requested = os.environ.get(VARIABLE)
        if requested == OFF or CLASS_PATH not in conf:
            return None
        jars = [Path(jar) for jar in conf[CLASS_PATH].split(os.pathsep)]
        try:
            path = cache_directory() / "classes" / f"{_digest(jars, java=java, spark_home=spark_home)}.jsa"
            if path.exists() and requested != WRITE:
                return cls(path)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            listed = path.with_suffix(f".{os.getpid()}.list")
            listed.touch(mode=0o600)
        except OSError:
            return None
        atexit.register(listed.unlink, missing_ok=True)
        return cls(path, listed)

    def added_to(self, conf: Mapping[str, str]) -> dict[str, str]:
        """Return the settings with the archive's JVM options in front of the user's."""
        # The JVM verifies checksums, which takes 0.1 s of CPU, so that it ignores a damaged archive.
        read = f"-XX:SharedArchiveFile={self.path} -XX:+VerifySharedSpaces"
        use = read if self.listed is None else f"-XX:DumpLoadedClassList={self.listed}"
        return {**conf, OPTIONS: f"{use} {QUIET} {conf.get(OPTIONS, '')}".rstrip()}


def _digest(jars: Iterable[Path], *, java: Path, spark_home: Path) -> str:
    home = java.resolve().parents[1]
    files = [home / "lib" / "modules", *jars, *sorted((spark_home / "jars").iterdir())]
    states = [(str(file), status.st_size, status.st_mtime_ns) for file in files for status in [file.stat()]]
    return hashlib.sha256(repr(states).encode()).hexdigest()[:24]
