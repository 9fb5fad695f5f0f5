"""Run Spark drivers in separate processes, and exchange lines with them."""

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

# Options for JVMs that live for seconds, in which the second compiler would cost more time than it saves.
SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@dataclass(frozen=True)
class Driver:
    """A Spark driver in a separate process."""

    process: subprocess.Popen[str]
    log: Path

    def tell(self, line: str) -> None:
        """Write a line to the driver's stdin."""
        stdin = cast(IO[str], self.process.stdin)
        stdin.write(line + "\n")
        stdin.flush()

    def hear(self) -> str:
        """Return the next line of the driver's stdout."""
        line = cast(IO[str], self.process.stdout).readline().strip()
        assert line, f"the driver has died: {self.log.read_text()[-4000:]}"
        return line

    def prepare(self, pipeline: Path, **job: Any) -> None:
        """Send ``tests.support.faults.driver_child`` a pipeline; return when the driver is ready to run it."""
        self.tell(json.dumps({"file": str(pipeline), **job}))
        assert self.hear() == "ready"

    def run(self, file: Path) -> None:
        """Run a pipeline to its end."""
        self.prepare(file)
        self.tell("0")
        assert self.ended() is None

    def ended(self) -> str | None:
        """Return the outcome of the run: None if it landed all records, else the error."""
        error: str | None = json.loads(self.hear())["error"]
        return error

    def children(self) -> list[int]:
        """Return the process ids of the driver's JVM and of all other processes below the driver."""

        def below(pid: int) -> list[int]:
            found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            return [each for child in map(int, found) for each in (child, *below(child))]

        return below(self.process.pid)


@contextmanager
def driver(module: str, *, environment: Mapping[str, str], log: Path) -> Iterator[Driver]:
    """Run a driver that can reach the servers, until the block ends.

    Args:
        module: run with ``python -m``.
        environment: variables with the servers' addresses.
        log: the file for the driver's stderr.
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
