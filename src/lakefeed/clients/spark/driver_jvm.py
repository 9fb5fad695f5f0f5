"""Find Java, and start the driver's JVM so that only this process ends it.

A signal to the process group, or to all processes of a service, also reaches the JVM. PySpark protects its JVM only
from SIGINT, so SIGTERM would end it in the middle of a batch. Here the JVM ignores SIGHUP, SIGINT and SIGTERM. It ends
when its standard input, a pipe from this process, closes; the pipe also closes if SIGKILL ends this process.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import module_from_spec
from pathlib import Path
from typing import IO, Any

from lakefeed.clients.spark.class_archive import ClassArchive
from lakefeed.clients.spark.connect import part_of_pyspark
from lakefeed.clients.spark.start_checks import StartChecks
from lakefeed.errors import JavaError, WorldError

# Spark 4.1 is compiled for Java 17, and tested up to 21. Hadoop fails on Java 24 (Subject.getSubject, JEP 486).
_OLDEST_JAVA, _NEWEST_JAVA = 17, 21
_INSTALL = "install Java 17 (Debian: apt install openjdk-17-jre-headless) and set JAVA_HOME to it"
_JAVA_SECONDS = 20
_POLL_SECONDS = 0.05
_TAIL_BYTES = 2_000
_TAIL_LINES = 5
# spark-submit first starts a JVM that only prints the command line of Spark's JVM.
_LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A shell script that ignores signals and starts the JVM, which then ignores them, too: HotSpot does not change that.
_IGNORING = 'trap "" HUP INT TERM; exec "$@"'


def require_java() -> Path:
    """Return the ``java`` of ``JAVA_HOME``, else of ``PATH``; raise a JavaError if Spark does not support its version.

    If only ``JAVA_HOME`` is wrong, the hint names the ``java`` on ``PATH``.
    """
    on_path, home = shutil.which("java"), os.environ.get("JAVA_HOME")
    if not home and not on_path:
        raise JavaError("no Java was found: JAVA_HOME is not set and PATH has no java", hint=_INSTALL)
    java = Path(home) / "bin" / "java" if home else Path(on_path or "")
    answer = _java_version(java)
    major = _major(answer)
    if major is None:
        first_line = (answer.strip().splitlines() or ["nothing"])[0][:200]
        what = f"`java -version` prints no version but: {first_line}"
    elif _OLDEST_JAVA <= major <= _NEWEST_JAVA:
        return java
    else:
        age = "old" if major < _OLDEST_JAVA else "new"
        what = f"Java {major} is too {age}: {_OLDEST_JAVA} to {_NEWEST_JAVA} is needed"
    hint = _INSTALL
    if home and on_path:
        other = _major(_java_version(Path(on_path)))
        if other is not None and _OLDEST_JAVA <= other <= _NEWEST_JAVA:
            hint = f"unset JAVA_HOME: {on_path} from PATH is Java {other}"
    raise JavaError(what, where=f"{java} (from {'JAVA_HOME' if home else 'PATH'})", hint=hint)


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    return Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")


def start(
    conf: Mapping[str, str],
    *,
    log_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    checks: StartChecks | None = None,
) -> None:
    """Start the JVM for this process's next SparkContext, unless a JVM already runs; run ``checks`` meanwhile.

    ``environment`` has further variables for the JVM. An error of the checks ends the JVM and is raised.
    """
    if _gateway_runs() or "PYSPARK_GATEWAY_PORT" in os.environ:
        if checks is not None:
            checks.finish()
        return
    home = _spark_home()
    if (archive := ClassArchive.of(conf, java=_java(), spark_home=home)) is not None:
        conf = archive.added_to(conf)
    command = [str(home / "bin" / "spark-submit")]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with tempfile.TemporaryDirectory(prefix="lakefeed-") as folder, private_log(log_file) as log:
        answer = Path(folder) / "gateway"
        began = log.tell() if log is not None else 0
        jvm = subprocess.Popen(
            ["/bin/sh", "-c", _IGNORING, "sh", *command],
            stdin=subprocess.PIPE,
            stderr=log,
            env={
                **os.environ,
                **(environment or {}),
                "SPARK_CONNECT_MODE": "0",
                "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", _LAUNCHER),
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer),
            },
        )
        try:
            # Import PySpark while the JVM starts: the import takes a third of that time.
            from pyspark import SparkContext
            from pyspark.java_gateway import launch_gateway

            if checks is not None:
                checks.begin()
            while not answer.exists():
                if jvm.poll() is not None:
                    raise WorldError(
                        f"Spark's JVM ended with status {jvm.returncode} during its start" + _tail(log_file, began),
                        where=str(log_file) if log_file else None,
                        hint="read the log; usual causes: spark.driver.memory is too large, or JAVA_HOME is wrong",
                    )
                if checks is not None:
                    checks.poll()
                time.sleep(_POLL_SECONDS)
            # The file has the port in four bytes, the secret's length in four bytes, and the secret.
            content = answer.read_bytes()
            port, secret = int.from_bytes(content[:4], "big"), content[8:].decode()
            with _environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
                gateway = launch_gateway()  # type: ignore[no-untyped-call]
            if checks is not None:
                checks.finish()
        except BaseException:
            jvm.kill()
            jvm.communicate()
            raise
    gateway.proc = jvm
    ClassArchive.of_this_process = archive
    SparkContext._ensure_initialized(gateway=gateway)


def _gateway_runs() -> bool:
    """Return whether PySpark already has a JVM, without importing PySpark, which takes a second."""
    context: Any = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None


def _spark_home() -> Path:
    spec: Any = part_of_pyspark("find_spark_home")
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    return Path(module._find_spark_home())


@contextmanager
def private_log(log_file: Path | None) -> Iterator[IO[bytes] | None]:
    """Open the JVM's log for appending, readable only for its owner, because it may contain values of records."""
    if log_file is None:
        yield None
        return
    log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        os.fchmod(log.fileno(), 0o600)
        yield log


def _tail(log_file: Path | None, began: int) -> str:
    """Return the last lines of the log that were written after the file position ``began``."""
    if log_file is None:
        return ""
    with log_file.open("rb") as log:
        log.seek(max(began, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    return "".join(f"\n  | {line}" for line in lines[-_TAIL_LINES:])


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def _java_version(java: Path) -> str:
    """Return the text of the file with a JDK's version, or else the output or the error of ``java -version``."""
    with suppress(OSError, IndexError):
        return (java.resolve().parents[1] / "release").read_text("utf-8", errors="replace")
    try:
        done = subprocess.run(
            [str(java), "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_JAVA_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr + done.stdout).decode(errors="replace")


def _major(answer: str) -> int | None:
    """Return Java's major version: 17 for ``openjdk version "17.0.15" 2025-04-15``, 8 for ``JAVA_VERSION="1.8.0"``."""
    match = re.search(r'(?:version |JAVA_VERSION=)"(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else None
