"""Run a module of the tests as a separate process without lakefeed's commands: a writer that a test kills."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.faults.drivers import ROOT


@contextmanager
def running(
    module: str, given: Mapping[str, Any], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``python -m module`` in its own process group, which is killed when the block ends.

    Args:
        module: a module that reads a JSON object as a line from its stdin.
        given: the JSON object.
        environment: variables in addition to those of this process.
        log: the file for the module's output.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(given).encode() + b"\n")
    process.stdin.flush()
    try:
        yield process
    finally:
        kill(process)
        process.stdin.close()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to the process and its JVM at the same moment."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
