"""A run of the tests that is cut off leaves no server behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Each of two workers starts a server that belongs to init, as the local stack does, and one of its own.
SUITE = """
import time
from pathlib import Path
import pytest
from lakefeed.local.process import start_detached
from tests.support.servers.process import running

@pytest.mark.parametrize("number", [1, 2])
def test_waits(number):
    here = Path({folder!r}) / str(number)
    here.mkdir()
    server = start_detached(["/bin/sleep", "600"], log=here / "log", pid_file=here / "pid", cwd=here, environment={{}})
    with running(["/bin/sleep", "600"], log=here / "own", ready=lambda: True, environment={{}}) as own:
        (here / "started").write_text(f"{{server.pid}} {{own.pid}}")
        time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


# As a worker: what it has started, it can no longer stop.
CHILD = """
import sys, time
from pathlib import Path
from lakefeed.local.process import start_detached
from tests.support import guardian
here = Path(sys.argv[1])
guardian.watch(0.2)
server = start_detached(["/bin/sleep", "600"], log=here / "log", pid_file=here / "pid", cwd=here, environment={})
print(server.pid, flush=True)
time.sleep(600)
"""


def test_no_server_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:
        assert child.stdout is not None
        server = int(child.stdout.readline())
        child.kill()
        child.wait(30)
    deadline = time.monotonic() + 20
    while alive(server):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_outlives_a_run_that_is_cut_off(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE.format(folder=str(tmp_path)))
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_configure\n")
    command = [
        "-m",
        "pytest",
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        tmp_path,
    ]
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, *map(str, [*command, tmp_path])],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    deadline = time.monotonic() + 90
    started = [tmp_path / each / "started" for each in ("1", "2")]
    while not all(each.exists() and each.read_text() for each in started):
        assert run.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.05)
    pids = [int(pid) for each in started for pid in each.read_text().split()]
    assert all(map(alive, pids))
    if number == signal.SIGINT:
        os.killpg(run.pid, number)  # As a terminal does.
    else:
        run.send_signal(number)
    run.wait(60)
    while any(map(alive, pids)):
        assert time.monotonic() < deadline, pids
        time.sleep(0.05)
