"""Detached processes are started, found and stopped; another process is never stopped."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lakefeed.clients.environment import process_start
from lakefeed.errors import WorldError
from lakefeed_local.part import Detached, find_detached, start_detached


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Detached]]:
    processes: list[Detached] = []
    yield processes
    for process in processes:
        process.signal(signal.SIGKILL)


def start(folder: Path, script: str) -> Detached:
    return start_detached(
        ["/bin/sh", "-c", script],
        log=folder / "log",
        pid_file=folder / "pid",
        cwd=folder,
        environment={"GREETING": "hello"},
    )


def await_output(folder: Path, process: Detached) -> None:
    while not (folder / "log").exists() or not (folder / "log").read_text():
        assert process.alive()
        time.sleep(0.01)


def test_a_detached_process_is_found_by_its_pid_file(tmp_path: Path, started: list[Detached]) -> None:
    process = start(tmp_path, "echo $GREETING; exec sleep 60")
    started.append(process)
    await_output(tmp_path, process)
    assert process.alive()
    assert find_detached(tmp_path / "pid") == process
    assert os.getsid(process.pid) != os.getsid(0)
    assert f"PPid:\t{os.getpid()}\n" not in Path(f"/proc/{process.pid}/status").read_text()
    process.stop(grace_seconds=10)
    assert not process.alive()
    assert (tmp_path / "log").read_text() == "hello\n"


def test_stop_kills_a_process_that_ignores_sigterm(tmp_path: Path, started: list[Detached]) -> None:
    process = start(tmp_path, "trap '' TERM; echo ignoring; while :; do sleep 0.1; done")
    started.append(process)
    await_output(tmp_path, process)
    process.stop(grace_seconds=0.3)
    assert not process.alive()


def test_a_new_process_with_the_pid_of_an_ended_process_is_not_stopped(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(json.dumps({"pid": os.getpid(), "began": "1"}))
    process = find_detached(tmp_path / "pid")
    assert process is not None
    assert not process.alive()
    # If stop took the process with the reused pid for the old process, this test run would end.
    process.stop(grace_seconds=1)


@pytest.mark.parametrize("text", ["", "123", "{}", '{"pid": "x", "began": "1"}', "[1]"])
def test_an_unreadable_pid_file_names_no_process(tmp_path: Path, text: str) -> None:
    assert find_detached(tmp_path / "pid") is None
    (tmp_path / "pid").write_text(text)
    assert find_detached(tmp_path / "pid") is None


def test_the_log_names_a_missing_program(tmp_path: Path) -> None:
    # Depending on timing, ``start_detached`` raises the error, or the process ends after it.
    with suppress(WorldError):
        process = start_detached(
            ["/nothing/here"], log=tmp_path / "log", pid_file=tmp_path / "pid", cwd=tmp_path, environment={}
        )
        assert process.wait(10)
    assert "here" in (tmp_path / "log").read_text()


def test_a_process_without_a_pid_file_is_killed(tmp_path: Path) -> None:
    # The pid file cannot be written, as on a full disk. Without the file, no command could find and stop the process.
    (tmp_path / "pid").mkdir()
    with pytest.raises(OSError, match=r"Is a directory.*/pid'"):
        start(tmp_path, f"echo $$ >{tmp_path}/own; exec sleep 60")
    own = tmp_path / "own"
    # The shell has not written its pid to the file if it was killed early.
    number = own.read_text().strip() if own.exists() else ""
    assert not number or process_start(int(number)) is None
