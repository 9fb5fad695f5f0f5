"""Disable the guards of ``tools/guards`` one by one in a copy of the repository, and check that a test fails then.

``python -m tools.mutants [word...]`` disables the guards whose names contain one of the words, or all guards. Exit
status 1 if the tests of a disabled guard pass, or cannot run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tools.guards import GUARDS, Guard
from tools.source_tree import JARS, copy_to

SECONDS = 900
Outcome = Literal["noticed", "SURVIVED", "BROKEN"]
PYTEST_FAILED = 1


def main(words: list[str]) -> int:
    """Try the guards that the words choose, and report the results."""
    chosen = [each for each in GUARDS if not words or any(word in each.name for word in words)]
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="lakefeed-mutants-") as folder:
        copy = Path(folder)
        copy_to(copy)
        for guard in chosen:
            began = time.monotonic()
            outcome, output = _tried(guard, copy)
            outcomes.append(outcome)
            print(f"{outcome:9} {time.monotonic() - began:4.0f} s  {guard.name}", flush=True)
            if outcome != "noticed":
                print(output[-3000:], flush=True)
    noticed = outcomes.count("noticed")
    print(f"for {noticed} of {len(chosen)} guards, a test fails without the guard")
    return 0 if noticed == len(chosen) else 1


def _tried(guard: Guard, copy: Path) -> tuple[Outcome, str]:
    """Run a guard's tests in the copy, where it is disabled; return the outcome and the tests' output."""
    # PYTHONPATH makes the tests import the copy instead of this checkout's editable installation.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(copy / "src"), *map(str, copy.glob("packages/*/src"))]),
    }
    with _without(guard, copy):
        if guard.file.endswith(".java"):
            built = _run([sys.executable, "tools/build_jvm.py"], copy, environment)
            if built.returncode != 0:
                return "BROKEN", built.stdout
        try:
            tested = _run([sys.executable, "-m", "pytest", "-q", "-x", *guard.tests], copy, environment)
        except subprocess.TimeoutExpired:
            return "BROKEN", f"the guard's tests did not end within {SECONDS} s"
    if tested.returncode == 0:
        return "SURVIVED", tested.stdout
    failed = tested.returncode == PYTEST_FAILED and " failed" in tested.stdout.splitlines()[-1]
    return "noticed" if failed else "BROKEN", tested.stdout


@contextmanager
def _without(guard: Guard, copy: Path) -> Iterator[None]:
    path = copy / guard.file
    jars = {copy / jar: (copy / jar).read_bytes() for jar in JARS}
    whole = path.read_text("utf-8")
    path.write_text(guard.removed_from(whole), "utf-8")
    try:
        yield
    finally:
        path.write_text(whole, "utf-8")
        for jar, content in jars.items():
            jar.write_bytes(content)


def _run(command: list[str], copy: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
