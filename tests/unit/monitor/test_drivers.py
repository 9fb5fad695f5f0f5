"""Commands find the drivers on this machine by the files that drivers write."""

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


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))


def test_a_drivers_file_describes_the_run_and_is_readable_only_by_the_user() -> None:
    with announced(
        this_driver(), feed="taxi", identity="taxi\nx", since=5.0, url="http://127.0.0.1:1", token="t"
    ) as note_fence:
        path = path_of("taxi\nx")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "taxi" not in path.name
        found = find("taxi\nx")
        assert found is not None
        assert (found.pid, found.token, found.is_running) == (os.getpid(), "t", True)
        assert "token" not in repr(found)
        assert (found.fence, found.has_begun) == (None, False)
        note_fence("3 abc")
        begun = find("taxi\nx")
        assert begun is not None
        assert (begun.fence, begun.has_begun, stat.S_IMODE(path.stat().st_mode)) == ("3 abc", True, 0o600)
        assert [driver.feed for driver in all_drivers()] == ["taxi"]
    over = find("taxi\nx")
    assert over is not None
    assert (over.ended, over.url, over.token, over.fence, over.is_running) == ("ended", None, None, "3 abc", False)
    assert over.ended_at is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert all_drivers() == []


def test_the_file_of_a_failed_run_has_its_error() -> None:
    with pytest.raises(Unreachable), announced(this_driver(), feed="taxi", identity="taxi", since=1.0):
        raise Unreachable("no broker answers", where="b:9092", hint="start it")
    [found] = all_drivers()
    assert (found.ended, found.is_running) == ("failed", False)
    assert found.error is not None
    assert (found.error.what, found.error.where, found.error.hint) == ("no broker answers", "b:9092", "start it")


def test_a_refused_start_restores_the_file_of_the_running_driver() -> None:
    own = this_driver()
    with announced(own, feed="taxi", identity="taxi", since=1.0, url="u", token="t") as note_fence:
        note_fence("3 abc")
        before = find("taxi")
        assert before is not None
        with announced(own, feed="taxi", identity="taxi", since=2.0):
            pass
        again = find("taxi")
        assert again is not None
        assert again.as_dict() == before.as_dict()
    with announced(own, feed="taxi", identity="taxi", since=3.0):
        pass
    found = find("taxi")
    assert found is not None
    assert (found.since, found.ended) == (3.0, "ended")


def test_a_file_of_a_later_version_is_read() -> None:
    with announced(this_driver(), feed="taxi", identity="taxi", since=1.0):
        path = path_of("taxi")
        path.write_text(json.dumps({**json.loads(path.read_text()), "new": 1}))
        found = find("taxi")
        assert found is not None
        assert found.feed == "taxi"


def test_drivers_of_other_machines_are_not_listed() -> None:
    there = this_driver().model_copy(update={"host": "there"})
    with announced(there, feed="taxi", identity="taxi", since=1.0):
        assert find("taxi") is not None
        assert all_drivers() == []


def test_a_user_without_a_home_can_run_a_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("lakefeed.monitor.drivers.drivers_folder", fails)
    with announced(this_driver(), feed="taxi", identity="taxi", since=1.0) as note_fence:
        note_fence("1 a")
        assert find("taxi") is None
        assert all_drivers() == []


def test_the_file_of_a_killed_driver_remains_and_shows_that_the_driver_does_not_run() -> None:
    code = """
import os
from lakefeed.monitor.drivers import announced
from lakefeed.monitor.feed_monitor import this_driver
with announced(this_driver(), feed="taxi", identity="taxi", since=1.0):
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    found = find("taxi")
    assert found is not None
    assert not found.is_running


def test_a_replaced_driver_that_ends_keeps_the_file_of_the_new_driver() -> None:
    first, second = this_driver(), this_driver().model_copy(update={"pid": 1})
    with announced(first, feed="taxi", identity="taxi", since=1.0):
        later = announced(second, feed="taxi", identity="taxi", since=2.0)
        later.__enter__()
    found = find("taxi")
    assert found is not None
    assert found.pid == 1


def test_a_file_that_other_users_can_read_is_ignored() -> None:
    with announced(this_driver(), feed="taxi", identity="taxi", since=1.0):
        path = path_of("taxi")
        path.chmod(0o644)
        assert find("taxi") is None
        path.chmod(0o600)
        path.write_text("{}")
        assert find("taxi") is None


def test_a_folder_that_is_not_writable_is_reported_and_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path / "file"))
    notes: list[str] = []
    with announced(this_driver(), feed="t", identity="t", since=1.0, say=notes.append) as note_fence:
        note_fence("1 a")
    [note] = notes
    assert f"{tmp_path}/file/run/drivers cannot be written: Not a directory" in note


def test_a_process_of_another_container_or_boot_is_not_the_driver() -> None:
    with announced(this_driver(), feed="taxi", identity="taxi", since=1.0):
        found = find("taxi")
    assert found is not None
    running = found.model_copy(update={"ended": None})
    assert (running.is_here, running.is_running) == (True, True)
    # Another container may share home folder and host name, but its process ids name other processes here.
    assert not running.model_copy(update={"pid_namespace": "pid:[1]"}).is_here
    rebooted = running.model_copy(update={"boot": "another", "pid_namespace": "pid:[1]"})
    assert (rebooted.is_here, rebooted.is_running) == (True, False)
    older = running.model_copy(update={"boot": None, "pid_namespace": None})
    assert (older.is_here, older.is_running) == (True, True)


def test_a_running_driver_updates_the_time_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefeed.monitor.drivers.TOUCH_SECONDS", 0.01)
    path = path_of("taxi")
    with announced(this_driver(), feed="taxi", identity="taxi", since=1.0):
        os.utime(path, (5.0, 5.0))
        until = time.monotonic() + 10
        while path.stat().st_mtime == 5.0 and time.monotonic() < until:
            time.sleep(0.01)
        found = find("taxi")
        assert found is not None
        assert found.alive_at is not None
        assert found.alive_at > time.time() - 60
