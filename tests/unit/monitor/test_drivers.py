"""Drivers on this machine are found by their files."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakefeed.errors import Unreachable
from lakefeed.monitor.drivers import all_drivers, announced, find, path_of
from lakefeed.monitor.feed_monitor import this_driver


def test_a_drivers_file_shows_its_run_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    with announced(
        this_driver(), feed="taxi", identity="taxi\nx", since=5.0, url="http://127.0.0.1:1", token="t", folder=tmp_path
    ) as note_fence:
        path = path_of("taxi\nx", folder=tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "taxi" not in path.name
        found = find("taxi\nx", folder=tmp_path)
        assert found is not None
        assert (found.pid, found.token, found.is_running) == (os.getpid(), "t", True)
        assert "token" not in repr(found)
        assert (found.fence, found.has_begun) == (None, False)
        note_fence("3 abc")
        begun = find("taxi\nx", folder=tmp_path)
        assert begun is not None
        assert (begun.fence, begun.has_begun, stat.S_IMODE(path.stat().st_mode)) == ("3 abc", True, 0o600)
        assert [driver.feed for driver in all_drivers(folder=tmp_path)] == ["taxi"]
    over = find("taxi\nx", folder=tmp_path)
    assert over is not None
    assert (over.ended, over.url, over.token, over.fence, over.is_running) == ("ended", None, None, "3 abc", False)
    assert over.ended_at is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert all_drivers(folder=tmp_path) == []


def test_the_file_of_a_failed_run_has_its_error(tmp_path: Path) -> None:
    with (
        pytest.raises(Unreachable),
        announced(this_driver(), feed="taxi", identity="taxi", since=1.0, folder=tmp_path),
    ):
        raise Unreachable("no broker answers", where="b:9092", hint="start it")
    [found] = all_drivers(folder=tmp_path)
    assert (found.ended, found.is_running) == ("failed", False)
    assert found.error is not None
    assert (found.error.what, found.error.where, found.error.hint) == ("no broker answers", "b:9092", "start it")


def test_a_refused_start_restores_the_file_of_the_running_driver(tmp_path: Path) -> None:
    own = this_driver()
    with announced(own, feed="taxi", identity="taxi", since=1.0, url="u", token="t", folder=tmp_path) as note_fence:
        note_fence("3 abc")
        before = find("taxi", folder=tmp_path)
        assert before is not None
        with announced(own, feed="taxi", identity="taxi", since=2.0, folder=tmp_path):
            pass
        again = find("taxi", folder=tmp_path)
        assert again is not None
        assert again.as_dict() == before.as_dict()
    with announced(own, feed="taxi", identity="taxi", since=3.0, folder=tmp_path):
        pass
    found = find("taxi", folder=tmp_path)
    assert found is not None
    assert (found.since, found.ended) == (3.0, "ended")


def test_a_file_of_a_later_version_is_read(tmp_path: Path) -> None:
    with announced(this_driver(), feed="taxi", identity="taxi", since=1.0, folder=tmp_path):
        path = path_of("taxi", folder=tmp_path)
        path.write_text(json.dumps({**json.loads(path.read_text()), "new": 1}))
        found = find("taxi", folder=tmp_path)
        assert found is not None
        assert found.feed == "taxi"


def test_drivers_of_other_machines_are_not_listed(tmp_path: Path) -> None:
    there = this_driver().model_copy(update={"host": "there"})
    with announced(there, feed="taxi", identity="taxi", since=1.0, folder=tmp_path):
        assert find("taxi", folder=tmp_path) is not None
        assert all_drivers(folder=tmp_path) == []


def test_a_user_without_a_home_can_run_a_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("lakefeed.monitor.drivers.drivers_folder", fails)
    with announced(this_driver(), feed="taxi", identity="taxi", since=1.0) as note_fence:
        note_fence("1 a")
        assert find("taxi") is None
        assert all_drivers() == []


def test_a_killed_driver_leaves_its_file_and_does_not_run(tmp_path: Path) -> None:
    code = f"""
import os
from pathlib import Path
from lakefeed.monitor.drivers import announced
from lakefeed.monitor.feed_monitor import this_driver
with announced(this_driver(), feed="taxi", identity="taxi", since=1.0, folder=Path({str(tmp_path)!r})):
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    found = find("taxi", folder=tmp_path)
    assert found is not None
    assert not found.is_running


def test_the_end_of_a_replaced_driver_leaves_its_successors_file(tmp_path: Path) -> None:
    first, second = this_driver(), this_driver().model_copy(update={"pid": 1})
    with announced(first, feed="taxi", identity="taxi", since=1.0, folder=tmp_path):
        later = announced(second, feed="taxi", identity="taxi", since=2.0, folder=tmp_path)
        later.__enter__()
    found = find("taxi", folder=tmp_path)
    assert found is not None
    assert found.pid == 1


def test_a_file_that_other_users_can_read_is_ignored(tmp_path: Path) -> None:
    with announced(this_driver(), feed="taxi", identity="taxi", since=1.0, folder=tmp_path):
        path = path_of("taxi", folder=tmp_path)
        path.chmod(0o644)
        assert find("taxi", folder=tmp_path) is None
        path.chmod(0o600)
        path.write_text("{}")
        assert find("taxi", folder=tmp_path) is None


def test_a_folder_that_is_not_writable_is_reported_and_the_run_continues(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    folder = tmp_path / "file"
    with announced(this_driver(), feed="t", identity="t", since=1.0, folder=folder, say=said.append) as note_fence:
        note_fence("1 a")
    [note] = said
    assert f"{folder} cannot be written: File exists" in note
    assert "LAKEFEED_HOME" in note
    assert path_of("t", folder=tmp_path).parent == tmp_path


def test_a_process_of_another_container_or_boot_is_not_the_driver(tmp_path: Path) -> None:
    with announced(this_driver(), feed="taxi", identity="taxi", since=1.0, folder=tmp_path):
        found = find("taxi", folder=tmp_path)
    assert found is not None
    running = found.model_copy(update={"ended": None})
    assert (running.is_here, running.is_running) == (True, True)
    # Another container may share home and host name; another process has its driver's id here.
    assert not running.model_copy(update={"pid_namespace": "pid:[1]"}).is_here
    rebooted = running.model_copy(update={"boot": "another", "pid_namespace": "pid:[1]"})
    assert (rebooted.is_here, rebooted.is_running) == (True, False)
    older = running.model_copy(update={"boot": None, "pid_namespace": None})
    assert (older.is_here, older.is_running) == (True, True)


def test_a_running_driver_updates_the_time_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefeed.monitor.drivers.TOUCH_SECONDS", 0.01)
    path = path_of("taxi", folder=tmp_path)
    with announced(this_driver(), feed="taxi", identity="taxi", since=1.0, folder=tmp_path):
        os.utime(path, (5.0, 5.0))
        until = time.monotonic() + 10
        while path.stat().st_mtime == 5.0 and time.monotonic() < until:
            time.sleep(0.01)
        found = find("taxi", folder=tmp_path)
        assert found is not None
        assert found.alive_at is not None
        assert found.alive_at > time.time() - 60
