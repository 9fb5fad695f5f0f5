"""Spark drivers in processes of their own, spoken to line by line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from tests.contract.stores import Store

ROOT = Path(__file__).resolve().parents[2]


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


@contextmanager
def driver(module: str, *, store: Store, log: Path) -> Iterator[Driver]:
    """A driver that knows the store.

    Args:
        module: run with ``python -m``.
        store: told by its environment.
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
            env={**os.environ, **store.as_environment(), "SPARK_LOCAL_IP": "127.0.0.1"},
        )
    try:
        yield Driver(process, log)
    finally:
        for stream in (process.stdin, process.stdout):
            cast(IO[str], stream).close()
        process.terminate()
        process.wait(60)
