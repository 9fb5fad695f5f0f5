"""Spark drivers in processes of their own, spoken to line by line."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

ROOT = Path(__file__).resolve().parents[3]

# For JVMs that live for seconds: what the second compiler costs it does not earn any more.
SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@dataclass(frozen=True)
class Driver:
    """A Spark driver in a process of its own."""

    process: subprocess.Popen[str]
    log: Path

    def tell(self, line: str) -> None:
        """One line to its stdin."""
        stdin = cast(IO[str], self.process.stdin)
        stdin.write(line + "\n")
        stdin.flush()

    def hear(self) -> str:
        """One line of its stdout."""
        line = cast(IO[str], self.process.stdout).readline().strip()
        assert line, f"the driver has died: {self.log.read_text()[-4000:]}"
        return line

    def prepare(self, pipeline: Path, **job: Any) -> None:
        """For ``tests.support.faults.driver_child``: it is to run this pipeline; returns when it is ready to."""
        self.tell(json.dumps({"file": str(pipeline), **job}))
        assert self.hear() == "ready"

    def ended(self) -> str | None:
        """How the run has ended: None when all records had landed, else the error."""
        error: str | None = json.loads(self.hear())["error"]
        return error


@contextmanager
def driver(module: str, *, environment: Mapping[str, str], log: Path) -> Iterator[Driver]:
    """A driver that knows the servers.

    Args:
        module: run with ``python -m``.
        environment: names the servers.
        log: where its stderr goes.
    """
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
    try:
        yield Driver(process, log)
    finally:
        for stream in (process.stdin, process.stdout):
            cast(IO[str], stream).close()
        process.terminate()
        process.wait(60)
