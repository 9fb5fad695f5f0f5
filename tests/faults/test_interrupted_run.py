"""An interrupted or killed test run leaves no process behind, whichever of its processes gets the signal."""

import os
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each of the two workers starts two servers: a server that becomes a child of init, as the local stack does, and a
# child process. Both servers have a new session and environment, so no signal from the terminal or make reaches them.
SUITE = """
import time
from pathlib import Path
from lakefeed_local.part import start_detached
from tests.support.servers.process import running

def test_waits():
    here = Path({folder!r})
    here.mkdir()
    server = start_detached(["/bin/sleep", "600"], log=here / "log", pid_file=here / "pid", cwd=here, environment={{}})
    with running(["/bin/sleep", "600"], log=here / "own", ready=lambda: True, environment={{}}) as own:
        (here / "started").write_text(f"{{server.pid}} {{own.pid}}")
        time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def processes_of(run: str) -> list[int]:
    """Return the ids of the processes that have the run's name in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if run.encode() in (folder / "environ").read_bytes() and is_alive(int(folder.name)):
                found.append(int(folder.name))
    return found


def controller_of(run: str) -> int:
    """Return the id of the pytest process that started the workers."""
    for pid in processes_of(run):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"pytest" in command and b"-n" in command and command[0].endswith(b"python"):
                return pid
    raise AssertionError("no controller")


@pytest.mark.parametrize("receiver", ["group", "controller"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_an_interrupted_test_run(number: signal.Signals, receiver: str, tmp_path: Path) -> None:
    for worker in ("1", "2"):  # Write two files, because one worker runs all tests of a file.
        (tmp_path / f"test_{worker}.py").write_text(SUITE.format(folder=str(tmp_path / worker)))
    (tmp_path / "conftest.py").write_text("from tests.support.own_process import pytest_configure\n")
    name = uuid.uuid4().hex
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS", "PYTEST_"))}
    arguments = f"-p no:cacheprovider -c {ROOT}/pyproject.toml --rootdir {tmp_path} {tmp_path}"
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(
            ["make", "-o", "setup", "test-full", "WORKERS=2", f"ARGS={arguments}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=ROOT,
            start_new_session=True,
            env={**inherited, "PYTHONPATH": str(ROOT), "LAKEFEED_INTERRUPTED_RUN": name},
        )
    deadline = time.monotonic() + 180
    started = [tmp_path / worker / "started" for worker in ("1", "2")]
    while not all(path.exists() and path.read_text() for path in started):
        assert run.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.05)
    servers = [int(pid) for path in started for pid in path.read_text().split()]
    assert all(map(is_alive, servers))
    if receiver == "group":
        os.killpg(run.pid, number)
    else:
        os.kill(controller_of(name), number)
    deadline = time.monotonic() + 60
    assert run.wait(60) != 0
    while remaining := [*filter(is_alive, servers), *processes_of(name)]:
        assert time.monotonic() < deadline, remaining
        time.sleep(0.05)
