"""Makes the class-data archive after the first run that has landed a batch, so that the next JVM starts quicker.

The JVM of that run has listed its classes. When the process has ended, a shell in the background makes the archive
from the list, with a low priority and a limit on CPU time. The shell's failures are not reported, because runs work
without an archive, too.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark.class_archive import QUIET, VARIABLE, WRITE, ClassArchive
from lakefeed.clients.spark.driver_jvm import require_java
from lakefeed.lazy import SparkSession

if TYPE_CHECKING:
    from lakefeed.operations.followers import FollowedRun

MOST_KEPT = 3
MOST_SECONDS = 300
_DAY_SECONDS = 86_400
# Only one shell can create the folder $archive.begun. After a failure the folder stays, so that no run tries again for
# a day. The list of classes is complete only after the JVM's end, so the shell waits for it.
_MAKE = f"""
jvm=$1 list=$2 archive=$3; shift 3
if mkdir "$archive.begun"; then
    for second in $(seq 60); do kill -0 "$jvm" || break; sleep 1; done
    ulimit -t {MOST_SECONDS}
    nice "$@" && mv "$list.part" "$archive" && rmdir "$archive.begun"
fi
rm -f "$list" "$list.part"
"""


@contextmanager
def follow(run: FollowedRun) -> Iterator[None]:
    """Make the archive after the end of this process if the run lands a batch."""
    yield
    if run.spark is not None and run.monitor.snapshot().last_commit_at is not None:
        make_at_exit(run.spark)


def make_at_exit(spark: SparkSession) -> None:
    """Make the archive after the end of this process, unless its JVM uses an archive or another process makes one.

    With ``LAKEFEED_CLASS_ARCHIVE=write``, this process waits for the archive at its end.
    """
    archive = ClassArchive.of_this_process
    if archive is not None and archive.listed is not None:
        gateway: Any = spark.sparkContext._gateway
        class_path = str(gateway.jvm.java.lang.System.getProperty("java.class.path"))
        atexit.register(_make, gateway.proc, archive.path, archive.listed, class_path)


def _make(jvm: subprocess.Popen[bytes], path: Path, listed: Path, class_path: str) -> None:
    """End the JVM, and start the shell that makes the archive."""
    waits, taken = os.environ.get(VARIABLE) == WRITE, listed.with_suffix(".taken")
    files = (f"-XX:SharedClassListFile={taken}", f"-XX:SharedArchiveFile={taken}.part")
    shell = ["/bin/sh", "-c", _MAKE if waits else f"({_MAKE}) &", "sh"]
    options = ["-Xshare:dump", "-Xmx1g", "-XX:TieredStopAtLevel=1", *QUIET.split(), *files, "-cp", class_path]
    with suppress(OSError, subprocess.TimeoutExpired):
        _remove_old(path, begun=waits)
        listed.rename(taken)
        if jvm.stdin is not None:
            jvm.stdin.close()  # At the end of its input, the JVM exits.
        if waits:
            jvm.wait(MOST_SECONDS)
        subprocess.run(
            [*shell, str(jvm.pid), str(taken), str(path), str(require_java()), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=MOST_SECONDS,
            check=False,
        )


def archives(folder: Path) -> list[Path]:
    """Return the files of the archives, newest first."""
    return sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)


def _remove_old(path: Path, *, begun: bool) -> None:
    """Remove old archives, and files that killed processes have left; with ``begun``, also new folders ``*.begun``."""
    for old in archives(path.parent)[MOST_KEPT - 1 :]:
        old.unlink(missing_ok=True)
    for left in path.parent.iterdir():
        is_old = time.time() - left.stat().st_mtime > _DAY_SECONDS
        if left.suffix == ".begun" and (is_old or begun):
            left.rmdir()
        elif left.suffix != ".jsa" and is_old:
            left.unlink()
