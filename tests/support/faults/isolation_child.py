"""Run ``lakefeed``, and die while it isolates records: ``python -m tests.support.faults.isolation_child STEP run …``.

The process dies at the attempt to isolate records that has the number STEP; with ``commit``, it dies when all failing
records are isolated, and the other records are about to land.
"""

import os
import signal
import sys
from typing import Any
from unittest.mock import patch

from lakefeed.cli.main import main
from lakefeed.feed.batch_writer import BatchWriter

SAYS = "dies while it isolates records"


def die() -> None:
    """Kill this process and its JVM at once."""
    print(SAYS, flush=True)
    os.killpg(0, signal.SIGKILL)


def run(step: str, arguments: list[str]) -> None:
    """Run a command that dies at this step."""
    tries, why, attempt = 0, BatchWriter._why, BatchWriter.attempt

    def counted_why(*args: Any, **options: Any) -> Any:
        nonlocal tries
        tries += 1
        if str(tries) == step:
            die()
        return why(*args, **options)

    def counted_attempt(writer: BatchWriter, *args: Any) -> Any:
        if step == "commit" and writer.rows.isolated:
            die()
        return attempt(writer, *args)

    with patch.object(BatchWriter, "_why", counted_why), patch.object(BatchWriter, "attempt", counted_attempt):
        main(arguments)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
