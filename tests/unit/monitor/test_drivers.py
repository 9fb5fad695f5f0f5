"""The drivers of this machine, by their files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from lakefeed.monitor.drivers import all_drivers, announced, find, path_of
from lakefeed.monitor.feed_monitor import this_driver


def test_a_driver_is_found_while_it_runs_and_its_file_is_its_owners(tmp_path: Path) -> None:
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
    assert find("taxi\nx", folder=tmp_path) is None
    assert not list(tmp_path.iterdir())


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


def test_a_driver_that_took_over_keeps_its_file(tmp_path: Path) -> None:
    first, second = this_driver(), replace(this_driver(), pid=1)
    with announced(first, feed="taxi", identity="taxi", since=1.0, folder=tmp_path):
        later = announced(second, feed="taxi", identity="taxi", since=2.0, folder=tmp_path)
        later.__enter__()
    found = find("taxi", folder=tmp_path)
    assert found is not None
    assert found.pid == 1


def test_a_file_that_others_may_read_is_not_trusted(tmp_path: Path) -> None:
    with announced(this_driver(), feed="taxi", identity="taxi", since=1.0, folder=tmp_path):
        path = path_of("taxi", folder=tmp_path)
        path.chmod(0o644)
        assert find("taxi", folder=tmp_path) is None
        path.chmod(0o600)
        path.write_text("{}")
        assert find("taxi", folder=tmp_path) is None


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with announced(this_driver(), feed="t", identity="t", since=1.0, folder=tmp_path / "file") as note_fence:
        note_fence("1 a")
    assert path_of("t", folder=tmp_path).parent == tmp_path
